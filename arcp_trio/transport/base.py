"""What a connection needs from whatever carries its frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import trio

from arcp_trio.transport.close_codes import CloseCode

GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
"""What a stream raises that is no more, whichever side ended it."""

#: Closing by force does no network I/O, so this only guards against a stream that misbehaves.
CLOSE_SECONDS: Final = 1.0


class TransportClosed(Exception):  # noqa: N818 - an end, and most often no error
    """The transport carries nothing any more, whoever ended it and however.

    `code` is the close code that says why, where there is one: the peer's, or the one it was sent.
    """

    def __init__(self, message: str = "closed", *, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class MessageTooBig(TransportClosed):
    """The peer sent more in one message than is allowed.

    Nothing more is read of it. It may be told why; then closing tells it, with the code of this.
    """


class HandshakeFailed(TransportClosed):
    """There is somebody, but no WebSocket; `status` is what an HTTP server said instead."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Transport(Protocol):
    """Carries whole frames both ways, in order.

    One task receives and any number send. Nothing here has a timeout: who waits, bounds the wait.
    """

    @property
    def peer(self) -> str:
        """Who is at the other end, for logs."""
        ...

    @property
    def private(self) -> bool:
        """Whether nobody can read along, as far as is known: encrypted, or within the machine."""
        ...

    @property
    def writing_since(self) -> float | None:
        """The Trio time at which the write under way last got on; None without one."""
        ...

    @property
    def unread(self) -> int:
        """How many messages have come, as far as is known, and are not received yet."""
        ...

    async def receive(self) -> str | bytes:
        """Return the next whole message; `bytes` is one the peer marked as binary.

        Raises:
            MessageTooBig: the peer's message is over the limit.
            TransportClosed: nothing more will come.
        """
        ...

    def receive_unread(self) -> Sequence[str | bytes]:
        """Return messages that have come already, in order; none where that is not known."""
        ...

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send each of `frames`, a whole text in UTF-8, all of them in one write.

        Cancellation: a write cut off part-way leaves a torn frame, so it ends the transport.

        Raises:
            TransportClosed: not all of it was, or will be, sent.
        """
        ...

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        """Say farewell and wait for the peer's; does nothing but return once the peer is gone."""
        ...


async def close_forcefully(stream: trio.abc.Stream) -> None:
    """Close a stream at once, also from a task that is cancelled; may be done twice."""
    if isinstance(stream, trio.SocketStream):
        stream.socket.close()  # all that there is to it, without turns of the scheduler
        return
    with trio.move_on_after(CLOSE_SECONDS, shield=True):
        await trio.aclose_forcefully(stream)
