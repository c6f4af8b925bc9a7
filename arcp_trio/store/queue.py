"""Group commit without timers: whatever is queued while a group commits is the next group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from arcp_trio.store.writes import Write

QUEUE_WRITES = 8_192
"""Writes that may wait; past it, emitters wait in `room()` and nothing is dropped."""


@attrs.define(eq=False)
class Group:
    """Writes that commit together. Whoever put one can wait for all."""

    writes: list[Write] = attrs.field(factory=list[Write])
    taken: trio.Event = attrs.field(factory=trio.Event)
    stored: trio.Event = attrs.field(factory=trio.Event)

    async def committed(self) -> None:
        """Return once the group, and so every group before it, is stored."""
        await self.stored.wait()


class WriteQueue:
    """First in, first out, taken whole by one writer."""

    def __init__(self) -> None:
        self._filling = Group()
        self._taken = Group()
        self._taken.stored.set()
        self._wake = trio.Event()

    def put(self, write: Write) -> Group:
        """Take the write's place in the order, at once; the group says when it is stored."""
        group = self._filling
        if not group.writes:
            self._wake.set()
        group.writes.append(write)
        return group

    @property
    def full(self) -> bool:
        """Whether emitters should wait."""
        return len(self._filling.writes) >= QUEUE_WRITES

    async def room(self) -> None:
        """Wait until the queue has room."""
        while self.full:
            await self._filling.taken.wait()

    async def flushed(self) -> None:
        """Wait until everything put so far is stored."""
        # With nothing queued, the last of it may still be on its way to the store.
        await (self._filling if self._filling.writes else self._taken).committed()

    async def run(self, apply: Callable[[Sequence[Write]], Awaitable[None]]) -> None:
        """Be the writer: commit group after group until cancelled."""
        while True:
            await self._wake.wait()
            # One pass of the scheduler, so that a session's numbers ride with the payload that woke
            # the writer.
            await trio.lowlevel.checkpoint()
            group, self._filling, self._wake = self._filling, Group(), trio.Event()
            self._taken = group
            group.taken.set()
            await apply(group.writes)
            group.stored.set()
