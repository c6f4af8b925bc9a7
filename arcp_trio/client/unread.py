"""Bounds the events that a client keeps: those to be read, and those for later iterations.

No event is lost unnoticed, and memory is bounded. At the bound, events go that every iteration has
passed, and those of jobs to which the program has no handle any more. If that is not enough, the
client stops reading: the network's back-pressure reaches the runtime, which keeps the rest. But a
program may be waiting for a frame that comes after events it does not take, and must get that
frame:

- The largest backlog of a job over which the program does not iterate is discarded. With
  `on_event` this is done even if no call waits.
- If every backlog is iterated over, or waits for `on_event`, and still no event is taken, the
  client reads beyond the bound for a while, further each time.

An iteration that needs events which are gone has the runtime send them again.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

import trio

MAX_EVENTS: Final = 10_000
MAX_BYTES: Final = 16 * 1024 * 1024

PATIENCE_SECONDS: Final = 0.1
"""How long a full client waits for an event to be taken before it reads on for a waiting call."""
FIRST_EXCESS: Final = 1 / 32
"""How far beyond the bound the client then reads, as a share of it; twice as far the next time."""


class Backlog(Protocol):
    """The kept events of one job."""

    @property
    def size(self) -> int:
        """How many bytes the events had on the wire."""
        ...

    @property
    def wanted(self) -> bool:
        """Whether the program has a handle, and so could still read the events."""
        ...

    @property
    def iterated(self) -> bool:
        """Whether the program has an iterator over the events."""
        ...

    @property
    def passed(self) -> int:
        """How many events no iteration still has to read."""
        ...

    def let_go_passed(self) -> None:
        """Forget the events that no iteration still has to read."""
        ...

    def discard(self) -> None:
        """Forget the events, and those to come."""
        ...


class UnreadEvents:
    """Counts the kept events of one client, over all of its jobs."""

    def __init__(self, *, handled: bool = False) -> None:
        self.backlogs: set[Backlog] = set()
        """The backlogs that are not empty."""
        self.stalled = False
        """The connection does not read on before an event is taken."""
        self._handled = handled  # with on_event: no program needs a backlog as well
        self._events = 0
        self._bytes = 0
        self._excess = 0.0  # how far beyond the bound is allowed now, as a share of it
        self._next_excess = FIRST_EXCESS
        self._taken = 0
        self._waiting = 0
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def full(self) -> bool:
        """Whether the connection must not read on."""
        if self._events < MAX_EVENTS and self._bytes < MAX_BYTES:
            return False
        return self._load >= 1 + self._excess

    @property
    def awaited(self) -> bool:
        """Whether a call of the program is waiting."""
        return self._waiting > 0

    def add(self, size: int) -> None:
        """Count an event of `size` bytes."""
        self._events += 1
        self._bytes += size

    def take(self, size: int, events: int = 1) -> None:
        """Stop counting `events` events of `size` bytes in all: they are not kept any longer."""
        self._events -= events
        self._bytes -= size
        if self._excess and self._load < 1 / 2:
            self._excess, self._next_excess = 0.0, FIRST_EXCESS
        if self.stalled:
            self.taken()

    def taken(self) -> None:
        """Notice that the program has taken an event: if the reading is stalled, it may go on."""
        self._taken += 1
        self._changed.unpark_all()

    def look_soon(self) -> None:
        """Discard the backlogs that the program cannot read any more; may be called anywhere."""
        with suppress(RuntimeError):  # outside of Trio; `make_room` looks, too
            token = trio.lowlevel.current_trio_token()
            token.run_sync_soon(self._discard_unwanted, idempotent=True)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Mark that a call waits, during the block, for a frame that is still to be read."""
        self._waiting += 1
        self._changed.unpark_all()
        try:
            yield
        finally:
            self._waiting -= 1

    async def make_room(self) -> None:
        """Wait until the connection may read on, or discard backlogs so that it may."""
        try:
            await self._make_room()
        finally:
            self.stalled = False

    async def _make_room(self) -> None:
        while self.full:
            if self._discard_unwanted() or self._let_go_passed() or self._discard_largest():
                continue
            before = self._taken
            self.stalled = True
            with trio.move_on_after(PATIENCE_SECONDS if self._waiting else math.inf):
                await self._changed.park()
                continue
            if self._taken == before and self._waiting:
                self._excess = self._load - 1 + self._next_excess
                self._next_excess *= 2
                return

    @property
    def _load(self) -> float:
        """How much is kept, as a share of the bound."""
        return max(self._events / MAX_EVENTS, self._bytes / MAX_BYTES)

    def _discard_unwanted(self) -> bool:
        """Discard the backlogs that the program cannot read any more."""
        unwanted = [backlog for backlog in self.backlogs if not backlog.wanted]
        for backlog in unwanted:
            backlog.discard()
        return bool(unwanted)

    def _let_go_passed(self) -> bool:
        """Forget what every iteration has passed, of the job where that is most."""
        most = max(self.backlogs, key=lambda backlog: backlog.passed, default=None)
        if most is None or not most.passed:
            return False
        most.let_go_passed()
        return True

    def _discard_largest(self) -> bool:
        """Discard the largest backlog over which the program does not iterate, if it may go."""
        if not self._handled and not self._waiting:
            return False
        candidates = [backlog for backlog in self.backlogs if not backlog.iterated]
        if not candidates:
            return False
        max(candidates, key=lambda backlog: backlog.size).discard()
        return True
