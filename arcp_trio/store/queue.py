"""Group commit without timers: whatever is queued while a group commits is the next group."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from arcp_trio.store.errors import StoreError
from arcp_trio.store.writes import AppendJournal, Write

log = logging.getLogger(__name__)

QUEUE_WRITES = 896
QUEUE_BYTES = 2 * 1024 * 1024
"""Writes, and bytes of events, that may wait; past either emitters do, and nothing is dropped.

Few enough for a group to commit in milliseconds, and for what is emitted meanwhile to fit into a
session's outbox: a session that keeps up need not read it back.
"""

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.05, 2.0
"""Pauses between tries of a group that cannot be stored; each is twice the one before."""


@attrs.define(eq=False)
class Group:
    """Writes that commit together. Whoever put one can wait for all."""

    writes: list[Write] = attrs.field(factory=list[Write])
    size: int = 0
    """Bytes of events."""
    taken: trio.Event = attrs.field(factory=trio.Event)
    stored: trio.Event = attrs.field(factory=trio.Event)
    acts: list[Callable[[], None]] = attrs.field(factory=list[Callable[[], None]])

    def then(self, act: Callable[[], None]) -> None:
        """Act once the group is stored, at once and without a task; it must not fail."""
        self.acts.append(act)

    async def begun(self) -> None:
        """Return once the writer has taken the group, all before it being stored."""
        await self.taken.wait()

    async def committed(self) -> None:
        """Return once the group, and so every group before it, is stored."""
        await self.stored.wait()


class WriteQueue:
    """First in, first out, taken whole by one writer.

    A group that cannot be stored is tried again, unchanged, until it can: nothing is dropped and
    nothing overtakes. Meanwhile the queue is in trouble, and full.
    """

    def __init__(self) -> None:
        self.trouble: str | None = None
        """Why nothing can be stored now."""
        self._filling = Group()
        self._taken = Group()
        self._taken.stored.set()
        self._wake = trio.Event()
        self._trouble_began = trio.Event()
        self._trouble_ended = trio.Event()
        self._trouble_ended.set()

    def put(self, write: Write) -> Group:
        """Take the write's place in the order, at once; the group says when it is stored."""
        group = self._filling
        if not group.writes:
            self._wake.set()
        group.writes.append(write)
        if type(write) is AppendJournal:
            group.size += len(write.entry.tail)
        return group

    @property
    def full(self) -> bool:
        """Whether emitters should wait."""
        filling = self._filling
        return (
            self.trouble is not None
            or len(filling.writes) >= QUEUE_WRITES
            or filling.size >= QUEUE_BYTES
        )

    async def room(self) -> None:
        """Wait until the queue has room."""
        while self.full:
            await self.recovered()
            if self.full:
                await self._filling.taken.wait()

    async def flushed(self) -> None:
        """Wait until everything put so far is stored."""
        # With nothing queued, the last of it may still be on its way to the store.
        await (self._filling if self._filling.writes else self._taken).committed()

    async def troubled(self) -> None:
        """Wait until the store is in trouble."""
        await self._trouble_began.wait()

    async def recovered(self) -> None:
        """Wait until the store is out of trouble."""
        await self._trouble_ended.wait()

    async def run(
        self,
        apply: Callable[[Sequence[Write]], Awaitable[None]],
        timed: Callable[[float], None] | None = None,
    ) -> None:
        """Be the writer: commit group after group until cancelled; `timed` is told the seconds."""
        while True:
            await self._wake.wait()
            # One pass of the scheduler, so that a session's numbers ride with the payload that woke
            # the writer.
            await trio.lowlevel.checkpoint()
            group, self._filling, self._wake = self._filling, Group(), trio.Event()
            self._taken = group
            group.taken.set()
            began = trio.current_time()
            await self._store(group, apply)
            if timed is not None:
                timed(trio.current_time() - began)
            group.stored.set()
            for act in group.acts:
                act()

    async def _store(
        self, group: Group, apply: Callable[[Sequence[Write]], Awaitable[None]]
    ) -> None:
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                await apply(group.writes)
            except StoreError as error:
                self._begin_trouble(str(error))
                await trio.sleep(pause)
                pause = min(2 * pause, LAST_RETRY_SECONDS)
            else:
                self._end_trouble()
                return

    def _begin_trouble(self, reason: str) -> None:
        if self.trouble is None:
            log.error("store in trouble, everything waits for it", extra={"error": reason})
            self._trouble_ended = trio.Event()
            self._trouble_began.set()
        self.trouble = reason

    def _end_trouble(self) -> None:
        if self.trouble is not None:
            log.warning("store works again")
            self.trouble = None
            self._trouble_began = trio.Event()
            self._trouble_ended.set()
