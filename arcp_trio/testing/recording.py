"""A client's transport whose frames are recorded and checked."""

from __future__ import annotations

from collections.abc import Sequence

from arcp_trio.testing.frames import parse_frame
from arcp_trio.testing.recorder import ConnectionRecord
from arcp_trio.transport import Transport
from arcp_trio.transport.close_codes import CloseCode


class RecordedTransport:
    """Passes each frame of a transport to a recorder, whose findings are raised here."""

    def __init__(self, transport: Transport, record: ConnectionRecord) -> None:
        self._transport = transport
        self._record = record

    @property
    def peer(self) -> str:
        """The address of the peer."""
        return self._transport.peer

    @property
    def private(self) -> bool:
        """Whether the connection is known to be encrypted, or to stay within the machine."""
        return self._transport.private

    @property
    def writing_since(self) -> float | None:
        """When the current write last made progress."""
        return self._transport.writing_since

    @property
    def unread(self) -> int:
        """How many messages have arrived and are not received yet."""
        return self._transport.unread

    async def receive(self) -> str | bytes:
        """Return the next message after checking it."""
        text = await self._transport.receive()
        self._record.saw(parse_frame(text))
        return text

    def receive_unread(self) -> Sequence[str | bytes]:
        """Return the messages that have arrived, after checking them."""
        texts = self._transport.receive_unread()
        for text in texts:
            self._record.saw(parse_frame(text))
        return texts

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send frames, and record what they ask for."""
        for frame in frames:
            self._record.sent(parse_frame(frame.decode()))
        await self._transport.send(frames)

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        """Close the transport."""
        await self._transport.close(code, reason)
