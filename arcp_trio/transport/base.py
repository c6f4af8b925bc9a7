"""The interface of transports, and the exceptions that they raise."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final, Protocol

import trio

from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.transport.pace import Pace

GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
"""The exceptions of a stream that is closed, whichever side closed it."""

CLOSE_SECONDS: Final = 1.0
"""A bound on closing by force, which does no network I/O, against streams that misbehave."""


class TransportClosed(Exception):  # noqa: N818 - an end, and most often no error
    """The transport is closed, by either side or by a failure.

    `code` is the close code, if a Close was exchanged: the one that the peer sent or was sent.
    """

    def __init__(self, message: str = "closed", *, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class MessageTooBig(TransportClosed):
    """The peer sent a message that is larger than allowed.

    Nothing more is read from the peer. Frames can still be sent to it; `Transport.close` then
    sends TOO_BIG, whatever code it is given.
    """


class HandshakeFailed(TransportClosed):
    """The peer does not open a WebSocket; `status` is an HTTP server's answer, if it gave one."""

    def __init__(
        self,
        message: str = "the peer did not finish the opening handshake",
        *,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status


class Transport(Protocol):
    """Carries whole frames both ways, in order.

    One task receives and any number send. No method has a timeout of its own: callers set one.
    """

    @property
    def peer(self) -> str:
        """The address of the peer, for logs."""
        ...

    @property
    def private(self) -> bool:
        """Whether the connection is known to be encrypted, or to stay within the machine."""
        ...

    @property
    def writing_since(self) -> float | None:
        """The Trio time at which the current write last made progress; None without a write."""
        ...

    @property
    def unread(self) -> int:
        """How many messages are known to have arrived and are not received yet."""
        ...

    async def receive(self) -> str | bytes:
        """Return the next whole message, as `bytes` if the peer marked it as binary.

        Raises:
            MessageTooBig: the peer's message is over the limit.
            TransportClosed: no more messages will come.
        """
        ...

    def receive_unread(self) -> Sequence[str | bytes]:
        """Return the messages that are known to have arrived, in order, without waiting."""
        ...

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send text messages, given in UTF-8, in one write.

        Cancellation: a write that is cut off leaves a torn frame, so it closes the transport.

        Raises:
            TransportClosed: not all of the messages were sent, and none will be.
        """
        ...

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        """Send a Close and wait for the peer's; return at once if the connection is closed."""
        ...


class SendsAtOnce(Transport):
    """A transport that can send without waiting, if its stream can."""

    @property
    @abstractmethod
    def sends_at_once(self) -> bool:
        """Whether `send_at_once` can be called now."""

    @abstractmethod
    def send_at_once(self, frames: Sequence[bytes]) -> bool:
        """Begin to send text messages, without waiting; return whether all of it was sent.

        The rest, if there is one, goes out with the next `send`, also of no frames. That one also
        raises what went wrong here.
        """


class HasPings(Transport):
    """A transport whose peer can send parts of messages, and pings and pongs of the transport."""

    @property
    @abstractmethod
    def gone(self) -> bool:
        """Whether the peer is known to send nothing more; it may have left messages."""

    @abstractmethod
    def share_pace(self, pace: Pace) -> None:
        """Count fragments, pings and pongs toward a pace that other transports have, too."""

    @abstractmethod
    def read_on(self) -> None:
        """Read on while nobody receives, so that pings are answered meanwhile."""


async def close_forcefully(stream: trio.abc.Stream) -> None:
    """Close a stream at once, also in a cancelled task; closing it twice does no harm."""
    if isinstance(stream, trio.SocketStream):
        stream.socket.close()  # the same without a checkpoint
        return
    with trio.move_on_after(CLOSE_SECONDS, shield=True):
        await trio.aclose_forcefully(stream)
