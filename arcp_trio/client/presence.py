"""Whether a client has its connection just now, for those who want to know each time it changes."""

from __future__ import annotations

import trio


class Presence:
    """One client's; it has been connected once before anybody asks."""

    def __init__(self) -> None:
        self.changes = 0
        """How often it was lost, and how often it came back: after an even number it is there."""
        self.over = False
        """There will be no other change: the session has ended."""
        self._changed = trio.lowlevel.ParkingLot()

    def note(self, *, there: bool) -> None:
        """It is there, or is lost; also if that is known."""
        if there != _is_there(self.changes):
            self.changes += 1
            self._changed.unpark_all()

    def end(self) -> None:
        """The session has ended."""
        self.over = True
        self._changed.unpark_all()

    async def more(self) -> None:
        """Wait for a change, or the end."""
        await self._changed.park()


class ConnectionStates:
    """Iterates over what there is now and what comes of it; a state that is over is not left out.

    All that it keeps is how far it is, so who is slow, or stops, holds up nothing.
    """

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._next = presence.changes

    def __aiter__(self) -> ConnectionStates:
        return self

    async def __anext__(self) -> bool:
        await trio.lowlevel.checkpoint()
        while self._next > self._presence.changes:
            if self._presence.over:
                raise StopAsyncIteration
            await self._presence.more()
        self._next += 1
        return _is_there(self._next - 1)


def _is_there(changes: int) -> bool:
    return changes % 2 == 0
