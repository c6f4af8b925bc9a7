"""A transport that a recorder watches."""

from __future__ import annotations

from collections.abc import Sequence

from arcp_trio.testing.frames import parse_frame
from arcp_trio.testing.recorder import ConnectionRecord
from arcp_trio.transport import Transport
from arcp_trio.transport.close_codes import CloseCode


class RecordedTransport:
    """A client's transport, whose every frame passes the recorder; what it finds is raised."""

    def __init__(self, transport: Transport, record: ConnectionRecord) -> None:
        self._transport = transport
        self._record = record

    @property
    def peer(self) -> str:
        """Who is at the other end."""
        return self._transport.peer

    @property
    def private(self) -> bool:
        """Whether nobody can read along."""
        return self._transport.private

    @property
    def writing_since(self) -> float | None:
        """When the write under way last got on."""
        return self._transport.writing_since

    @property
    def unread(self) -> int:
        """How many messages have come and are not received yet."""
        return self._transport.unread

    async def receive(self) -> str | bytes:
        """Return the next message, once it has been checked."""
        text = await self._transport.receive()
        self._record.saw(parse_frame(text))
        return text

    def receive_unread(self) -> Sequence[str | bytes]:
        """Return the messages that have come, once they have been checked."""
        texts = self._transport.receive_unread()
        for text in texts:
            self._record.saw(parse_frame(text))
        return texts

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send frames; what they ask for tells what may come back."""
        for frame in frames:
            self._record.sent(parse_frame(frame.decode()))
        await self._transport.send(frames)

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        """Say farewell."""
        await self._transport.close(code, reason)
