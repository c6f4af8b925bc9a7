"""How much a client keeps that its program has not taken yet.

Nothing is ever dropped in silence, and nothing is kept without bound. Past the bound the client
stops reading: the network's back-pressure reaches the runtime, which keeps the rest. But a program
may be waiting for something that stands behind what it has not taken, and must get it:

- The largest backlog of a job that nobody iterates is let go. `events()` says so if it is asked
  for after all. With `on_event` that is so even if nobody waits.
- If all that is left is being iterated, or waits for `on_event`, and still nobody takes anything,
  reading goes on for a while, longer each time.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, Protocol

import trio

MOST_EVENTS: Final = 10_000
MOST_BYTES: Final = 16 * 1024 * 1024

PATIENCE_SECONDS: Final = 0.1
"""Nobody takes anything for so long while somebody waits: then more is read."""
FIRST_GRANT: Final = 1 / 32
"""How much more that is, as a share of the bound; then twice as much, and so on."""


class Backlog(Protocol):
    """The unread events of one job."""

    @property
    def size(self) -> int:
        """Their bytes on the wire."""
        ...

    @property
    def wanted(self) -> bool:
        """Whether anybody could still read them."""
        ...

    @property
    def iterated(self) -> bool:
        """Whether somebody is iterating over them."""
        ...

    def let_go(self) -> None:
        """Forget them, and those to come."""
        ...


class Room:
    """One client's; shared by all of its jobs."""

    def __init__(self, *, handled: bool = False) -> None:
        self.backlogs: set[Backlog] = set()
        """Those that are not empty."""
        self._handled = handled  # whoever wants to see the events gets them another way
        self._events = 0
        self._bytes = 0
        self._granted = 0.0  # beyond the bound, as a share of it
        self._grant = FIRST_GRANT
        self._taken = 0
        self._waiting = 0
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def full(self) -> bool:
        """Whether nothing more should be read."""
        if self._events < MOST_EVENTS and self._bytes < MOST_BYTES:
            return False
        return self._load >= 1 + self._granted

    @property
    def awaited(self) -> bool:
        """Whether somebody waits."""
        return self._waiting > 0

    def add(self, size: int) -> None:
        """An event of this many bytes is kept."""
        self._events += 1
        self._bytes += size

    def take(self, size: int, events: int = 1) -> None:
        """It was taken, or let go."""
        self._events -= events
        self._bytes -= size
        self._taken += events
        if self._granted and self._load < 1 / 2:
            self._granted, self._grant = 0.0, FIRST_GRANT
        if self._changed:
            self._changed.unpark_all()

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Somebody waits for what has still to be read."""
        self._waiting += 1
        self._changed.unpark_all()
        try:
            yield
        finally:
            self._waiting -= 1

    async def make(self) -> None:
        """Wait until more may be read, or see to it."""
        while self.full:
            if self._let_go():
                continue
            before = self._taken
            with trio.move_on_after(PATIENCE_SECONDS if self._waiting else math.inf):
                await self._changed.park()
                continue
            if self._taken == before and self._waiting:
                self._granted = self._load - 1 + self._grant
                self._grant *= 2
                return

    @property
    def _load(self) -> float:
        """What is kept, as a share of what there is room for."""
        return max(self._events / MOST_EVENTS, self._bytes / MOST_BYTES)

    def _let_go(self) -> bool:
        dispensable = self._handled or self._waiting > 0
        candidates = [
            backlog
            for backlog in self.backlogs
            if not backlog.wanted or (dispensable and not backlog.iterated)
        ]
        if not candidates:
            return False
        max(candidates, key=lambda backlog: backlog.size).let_go()
        return True
