"""Group commit without timers: the writes queued while one group commits are the next group."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import attrs
import trio

from arcp_trio.store.errors import DiskFull, StoreError
from arcp_trio.store.outage import Cause
from arcp_trio.store.writes import AppendJournal, AppendLog, FinishJob, MoveFloor, Write

log = logging.getLogger(__name__)

QUEUE_WRITES: Final = 896
"""Writes that may wait. Above this, emitters wait, and nothing is dropped.

Few enough for a group to commit in milliseconds, and for the events emitted meanwhile to fit into a
session's outbox: a session that keeps up need not read them back from the store.
"""
QUEUE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of events that may wait; the same rule holds."""

MUCH_BYTES: Final = 32 * 1024 * 1024
"""Bytes of events after which it is time to look whether too much is kept."""

KEPT_PLACES: Final = 4
"""Places that a full queue still has for each principal: one principal's emitters may fill every
group before another one's get to it, and these go on by such places."""

GATHERING_TURNS: Final = 4
"""Turns of all tasks that the writer waits before it takes a group, while there are more writes."""
GATHERING_SECONDS: Final = 0.001
"""How long it waits so, about: on a busy loop no longer than one turn."""

FIRST_RETRY_SECONDS: Final = 0.05
"""Pause before the second try to store a group. Each pause is twice the one before."""
LAST_RETRY_SECONDS: Final = 2.0
"""The longest pause between two tries."""

_PATIENT: Final = frozenset({AppendJournal, AppendLog, MoveFloor})
"""Kinds of writes that go on as well a moment later: events, their numbers, acknowledgements."""

RefusedIds: TypeAlias = frozenset[str] | None
"""Sessions and jobs whose writes were left out, as they are another node's; None stands for none.
"""

Commit: TypeAlias = Callable[[Sequence[Write]], Awaitable[RefusedIds]]
"""Stores writes, all or none but for those that are refused, in order.

It raises `StoreError` if that may succeed later.
"""


@attrs.define(eq=False)
class Group:
    """Writes that commit together. Every task that put one of them can wait for all of them."""

    writes: list[Write] = attrs.field(factory=list[Write])
    size: int = 0
    """Bytes of events."""
    refused: frozenset[str] = frozenset()
    """Ids of the sessions and jobs whose writes in this group were not stored, as these are another
    node's. It is known once the group is stored."""
    taken: trio.Event = attrs.field(factory=trio.Event)
    stored: trio.Event = attrs.field(factory=trio.Event)
    _tried: trio.Event = attrs.field(factory=trio.Event)
    _told: list[trio.MemorySendChannel[Group]] = attrs.field(
        factory=list["trio.MemorySendChannel[Group]"]
    )

    def tell(self, channel: trio.MemorySendChannel[Group]) -> None:
        """Have the group itself sent to a channel without a bound, as soon as it is stored."""
        self._told.append(channel)

    async def committed(self) -> None:
        """Wait until the group, and so every group before it, is stored."""
        await self.stored.wait()

    def note_stored(self) -> None:
        """Note that the group is stored."""
        self.stored.set()
        self._tried.set()
        for channel in self._told:
            channel.send_nowait(self)
        self._told.clear()
        self.writes.clear()  # a session keeps its last group, and would keep all that is in it

    def note_try(self) -> None:
        """Note that the group is stored, or finds the disk full."""
        self._tried.set()

    def forget_try(self) -> None:
        """Have those wait that put a write from here on."""
        self._tried = trio.Event()

    async def tried(self) -> None:
        """Wait until the group is stored, or finds the disk full."""
        await self._tried.wait()


class WriteQueue:
    """Takes writes in order, and hands them in groups to one writer.

    A group that cannot be stored is tried again, unchanged, until it can: no write is dropped, and
    none overtakes another. Meanwhile the queue is in trouble, and full.
    """

    pace_seconds: float = 0.0
    """How long after the last one a group is taken at the earliest, if it has only events.

    To store a group costs about the same for one event and for ten. So the events of many slow
    agents share groups; an event that comes after a pause is stored at once.
    """

    trouble_seconds: float = 0.0
    """How long a group may be tried again before the store is in trouble."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        """Why nothing can be stored now; None while the writer succeeds."""
        self.disk_full = False
        """Whether that is because the disk is full."""
        self._cause = Cause()
        self._filling = Group()
        self._taken = Group()
        self._taken.stored.set()
        self._kept_places: Counter[str] = Counter()
        """How many of the places that a full group keeps for it each principal has taken."""
        self._wake = trio.Event()
        self._hurried = trio.Event()
        """Set if the next group is to be taken without regard to the pace."""
        self._storing_since = math.inf
        """On Trio's clock: when the writer has begun to store the group that it is storing."""
        self._trouble_began = trio.Event()
        self._trouble_ended = trio.Event()
        self._trouble_ended.set()
        self._written = 0
        """Bytes of events since `much_written` began to wait."""
        self._much_written = trio.Event()

    def put(self, write: Write) -> Group:
        """Queue a write, without waiting, and return its group; its place in the order is fixed."""
        group = self._filling
        if not group.writes:
            self._wake.set()
        group.writes.append(write)
        if type(write) is AppendJournal or type(write) is FinishJob:
            group.size += len(write.entry.tail)
        if type(write) not in _PATIENT or (type(write) is AppendLog and write.is_awaited):
            self._hurried.set()
        return group

    def doubt(self) -> None:
        """Have the writer find out whether it can store anything: reads fail."""
        self._hurried.set()
        self._wake.set()

    @property
    def silent_seconds(self) -> float:
        """For how long the writer has been storing a group, and nothing was heard of the engine."""
        return max(0.0, trio.current_time() - self._storing_since)

    @property
    def full(self) -> bool:
        """Whether emitters have to wait in `room()`."""
        return self.trouble is not None or self.crowded

    @property
    def crowded(self) -> bool:
        """Whether as much waits to be stored as may wait."""
        return len(self._filling.writes) >= QUEUE_WRITES or self._filling.size >= QUEUE_BYTES

    async def room(self, principal: str) -> None:
        """Wait until the queue has room, or a place that it keeps for the principal."""
        while self.full:
            await self.recovered()
            if self.full:
                self._hurried.set()
                if self._kept_places[principal] < KEPT_PLACES:
                    self._kept_places[principal] += 1
                    await trio.lowlevel.checkpoint()
                    return
                await self._filling.taken.wait()

    async def flushed(self) -> None:
        """Wait until everything put so far is stored."""
        self._hurried.set()
        # With nothing queued, the writer may still be storing the last group it took.
        await (self._filling if self._filling.writes else self._taken).committed()

    async def much_written(self) -> None:
        """Wait until `MUCH_BYTES` more are stored; for one task, which then counts what is kept."""
        self._written, self._much_written = 0, trio.Event()
        await self._much_written.wait()

    async def troubled(self) -> None:
        """Wait until the store is in trouble."""
        await self._trouble_began.wait()

    async def recovered(self) -> None:
        """Wait until the store is no longer in trouble."""
        await self._trouble_ended.wait()

    async def commit_groups(
        self, commit: Commit, timed: Callable[[float], None] | None = None
    ) -> None:
        """Be the writer: store group after group with `commit`, until cancelled.

        `timed` is called after each group with the seconds it took.
        """
        began = -math.inf
        while True:
            await self._wake.wait()
            due = began + self.pace_seconds
            if not self._hurried.is_set() and trio.current_time() < due:
                with trio.move_on_at(due):
                    await self._hurried.wait()
            await self._gather()
            self._wake, self._hurried = trio.Event(), trio.Event()
            group, self._filling = self._filling, Group()
            self._kept_places.clear()
            self._taken = group
            group.taken.set()
            began = self._storing_since = trio.current_time()
            await self._retry(commit, group)
            self._storing_since = math.inf
            if timed is not None:
                timed(trio.current_time() - began)
            group.note_stored()
            self._written += group.size
            if self._written >= MUCH_BYTES:
                self._much_written.set()

    async def _gather(self) -> None:
        """Give other tasks a turn to put writes; on a disk up to four, while each brings more.

        Events and their numbers share a group in this way, and so do the starts and ends of jobs
        that the group before has released. A busy loop, whose turns take long, gets one turn.
        """
        began = trio.current_time()
        for _ in range(GATHERING_TURNS if self.pace_seconds else 1):
            before = len(self._filling.writes)
            await trio.lowlevel.checkpoint()
            late = trio.current_time() - began >= GATHERING_SECONDS
            if late or len(self._filling.writes) == before:
                return

    async def _retry(self, commit: Commit, group: Group) -> None:
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                group.refused = await commit(group.writes) or frozenset()
            except StoreError as error:
                if trio.current_time() - self._storing_since >= self.trouble_seconds:
                    self._begin_trouble(error)
                    if self.disk_full:
                        group.note_try()
                        self._filling.note_try()
                await trio.sleep(pause)
                pause = min(2 * pause, LAST_RETRY_SECONDS)
            else:
                self._end_trouble()
                return

    def _begin_trouble(self, error: StoreError) -> None:
        reason = str(error)
        if self._cause.is_news(reason):
            log.error("store in trouble, everything waits for it", extra={"error": reason})
        if self.trouble is None:
            self._trouble_ended = trio.Event()
            self._trouble_began.set()
        self.trouble = reason
        self.disk_full = isinstance(error, DiskFull)

    def _end_trouble(self) -> None:
        if self.trouble is not None:
            log.warning("store works again")
            self.trouble, self.disk_full = None, False
            self._filling.forget_try()
            self._cause.forget()
            self._trouble_began = trio.Event()
            self._trouble_ended.set()
