"""A client's transport whose frames are recorded and checked."""

from __future__ import annotations

from collections.abc import Sequence

from arcp_trio.testing.frames import parse_frame
from arcp_trio.testing.recorder import ConnectionRecord
from arcp_trio.transport import Transport
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.transport.pace import PartsPace


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

    def share_pace(self, pace: PartsPace) -> None:
        """Count fragments, pings and pongs toward a pace that other transports have, too."""
        self._transport.share_pace(pace)

    @property
    def unread(self) -> int:
        """How many messages have arrived and are not received yet."""
        return self._transport.unread

    async def receive(self) -> str | bytes:
        """Return the next message after checking it."""
        text = await self._transport.receive()
        self._record.saw(parse_frame(text))
        return text

    def read_on(self) -> None:
        """Read on while nobody receives."""
        self._transport.read_on()

    def receive_unread(self) -> Sequence[str | bytes]:
        """Return the messages that have arrived, after checking them."""
        texts = self._transport.receive_unread()
        for text in texts:
            self._record.saw(parse_frame(text))
        return texts

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send frames, and record what they ask for."""
        self._record_sent(frames)
        await self._transport.send(frames)

    @property
    def sends_at_once(self) -> bool:
        """Whether frames can be sent without waiting."""
        return self._transport.sends_at_once

    def send_at_once(self, frames: Sequence[bytes]) -> bool:
        """Begin to send frames, and record what they ask for."""
        self._record_sent(frames)
        return self._transport.send_at_once(frames)

    def _record_sent(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self._record.sent(parse_frame(frame.decode()))

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        """Close the transport."""
        await self._transport.close(code, reason)
