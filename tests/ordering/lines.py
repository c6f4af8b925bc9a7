"""Transports that carry whole frames within the process, thousands of connections a second."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import trio

from arcp_trio.transport import TransportClosed
from arcp_trio.transport.base import SendsAtOnce


def line(room: float = math.inf) -> tuple[Line, Line]:
    """Return the two ends of a line that holds this many frames each way."""
    there, back = _Way(room), _Way(room)
    return Line(there, back), Line(back, there)


class _Way:
    """One direction of a line: its frames, and how it ended."""

    def __init__(self, room: float) -> None:
        self.frames: deque[str] = deque()
        self.room = room
        self.ended: int | None = None
        self.broken = False
        self.changed = trio.lowlevel.ParkingLot()


class Line(SendsAtOnce):
    """One end of a line."""

    peer = "line"
    private = True
    writing_since: float | None = None

    def __init__(self, outgoing: _Way, incoming: _Way) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        self._rest: list[bytes] = []

    @property
    def unread(self) -> int:
        """How many frames can be received at once."""
        return len(self._incoming.frames)

    async def receive(self) -> str | bytes:
        """Return the next frame."""
        await trio.lowlevel.checkpoint()
        way = self._incoming
        while not way.frames:
            if way.ended is not None:
                raise TransportClosed(code=way.ended)
            await way.changed.park()
        way.changed.unpark_all()
        return way.frames.popleft()

    def receive_unread(self) -> Sequence[str | bytes]:
        """Return no frames: each frame is received by itself."""
        return ()

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send frames, waiting for room before each."""
        way = self._outgoing
        frames, self._rest = [*self._rest, *frames], []
        self.writing_since = trio.current_time()
        try:
            await trio.lowlevel.checkpoint()
            for frame in frames:
                self.writing_since = trio.current_time()
                while len(way.frames) >= way.room and not way.broken:
                    await way.changed.park()
                if way.broken or way.ended is not None:
                    raise TransportClosed
                way.frames.append(frame.decode())
                way.changed.unpark_all()
        finally:
            self.writing_since = None

    @property
    def sends_at_once(self) -> bool:
        """Whether frames can be sent without waiting."""
        way = self._outgoing
        ended = way.broken or way.ended is not None
        return not ended and not self._rest and self.writing_since is None

    def send_at_once(self, frames: Sequence[bytes]) -> bool:
        """Send the frames that there is room for; keep the rest for the next send."""
        way = self._outgoing
        fitting = int(min(way.room - len(way.frames), len(frames)))
        way.frames.extend(frame.decode() for frame in frames[:fitting])
        self._rest += frames[fitting:]
        way.changed.unpark_all()
        return not self._rest

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """End both directions; frames on their way still arrive."""
        await trio.lowlevel.checkpoint()
        self._end(code)

    def cut(self, *, losing: bool) -> None:
        """End the line without a farewell, and drop what this end has sent last, or not."""
        if losing:
            self._outgoing.frames.clear()
        self._end(1006)

    def _end(self, code: int) -> None:
        for way in (self._outgoing, self._incoming):
            way.ended = code if way.ended is None else way.ended
            way.changed.unpark_all()
        self._incoming.broken = True  # this end no longer reads
