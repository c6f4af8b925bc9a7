"""Following the journals that other nodes write: who watches them here learns of each entry."""

from __future__ import annotations

import logging
import math
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import trio

from arcp_trio.runtime.cluster.followed import Followed
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.store.outage import Outage
from arcp_trio.store.shared_writes import Follow, Unfollow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.store.queue import Group
    from arcp_trio.store.records import Owed
    from arcp_trio.store.shared import Extent, Follows

log = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 0.1
"""How long a group of writes may be under way when this node begins to follow, and not find it."""

READ_ENTRIES: Final = 1_024
READ_BYTES: Final = 1024 * 1024
"""Entries are read in pieces of at most this size."""


class Following:
    """The journals of other nodes that sessions here watch.

    The store has a row for each of them, by which the nodes that write them know whom to wake. The
    row is stored first, and then the journal is looked at, twice: what is added later wakes this
    node. A wake-up can get lost, so everything is looked at every `follow_seconds`, too.

    One task reads what is new, once for all sessions, and gives them hints of it in the order in
    which the jobs emitted. It reads all journals of a tree of jobs in one go: what a job says after
    the end of a child comes after that end. A session that is behind reads by itself.
    """

    def __init__(
        self, core: Core, follows: Follows, jobs: Jobs, hear: Callable[[], Awaitable[None]]
    ) -> None:
        """Follow for the sessions of one runtime.

        `hear` hands on the answers of other nodes. It is called between reading entries and hinting
        at them, because the promise that a job is cancelled comes before the job's terminal.
        """
        self._core = core
        self._follows = follows
        self._jobs = jobs
        self._hear = hear
        self._known: WeakValueDictionary[str, Followed] = WeakValueDictionary()
        """Journals that are followed, and those that a watch may be about to join."""
        self._followed: dict[str, Followed] = {}
        self._keys: dict[int, str] = {}
        """Jobs by the keys that wake-ups have."""
        self._trees: defaultdict[int | None, set[str]] = defaultdict(set)
        """The jobs of each tree that are followed; under None those whose tree is not known."""
        self._moved: set[str] = set()
        """Journals that are to be looked at."""
        self._new: dict[str, float] = {}
        """Journals that are part of every look, and until when on Trio's clock.

        A group that was being stored when this node began to follow may wake nobody, and so may
        one before that.
        """
        self._begun: deque[tuple[str, Group]] = deque()
        """Journals that are joined, with the groups of their rows, until these are stored."""
        self._one_begun = Wake()
        self._wake = Wake()
        self._outage = Outage(log, "journals of other nodes cannot be read")

    def find(self, job_id: str, length: int) -> Followed:
        """Return the journal of another node's job; it has `length` entries at least."""
        followed = self._known.get(job_id)
        if followed is None:
            followed = Followed(job_id, self._joined, self._left, length, hinted=length)
            self._known[job_id] = followed
        followed.length = max(followed.length, length)
        return followed

    def _joined(self, followed: Followed) -> None:
        self._followed[followed.job_id] = followed
        self._trees[followed.tree].add(followed.job_id)
        self._new[followed.job_id] = math.inf
        self._begun.append((followed.job_id, self._core.store.put(Follow(followed.job_id))))
        self._one_begun.set()

    async def _begin(self) -> None:
        """Have journals looked at as soon as their rows are stored, which are so in order."""
        while True:
            while self._begun:
                await self._begun[0][1].committed()
                job_id, _ = self._begun.popleft()
                self._new[job_id] = trio.current_time() + SETTLE_SECONDS
                self._wake.set()
            await self._one_begun.wait()

    def _left(self, followed: Followed) -> None:
        del self._followed[followed.job_id]
        if followed.key is not None:
            self._keys.pop(followed.key, None)
        tree = self._trees[followed.tree]
        tree.discard(followed.job_id)
        if not tree:
            del self._trees[followed.tree]
        self._new.pop(followed.job_id, None)
        self._core.store.put(Unfollow(followed.job_id))

    def refuse_if_full(self, job_id: str) -> None:
        """Refuse to follow another journal if there are too many.

        Raises:
            InternalError: the limit is reached.
        """
        most = self._core.limits.followed_jobs
        if len(self._followed) >= most and job_id not in self._followed:
            raise limit_hit("followed_jobs", most, what_helps="try again when a job has ended")

    # -- figures

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def most_owed(self) -> int:
        """How many entries the session that is furthest behind is owed of one journal."""
        return max((followed.owed for followed in self._followed.values()), default=0)

    # -- looking

    async def run(self) -> None:
        """Give the sessions hints, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._be_woken, name="wake-ups")
            nursery.start_soon(self._begin, name="journals to follow")
            seconds = self._core.limits.follow_seconds
            all_due = trio.current_time() + seconds
            while True:
                due = min([all_due, *self._new.values()]) if self._followed else math.inf
                with trio.move_on_at(due):
                    await self._wake.wait()
                moved, self._moved = self._moved, set()
                by = "notify"
                if trio.current_time() >= all_due:
                    all_due = trio.current_time() + seconds
                    moved = {job_id for job_id, each in self._followed.items() if not each.done}
                    by = "poll"
                await self._look_if_possible(moved, by)

    async def _be_woken(self) -> None:
        while True:
            keys = await self._follows.moved()
            if keys is None:
                self._moved |= self._followed.keys()
            else:
                known = keys & self._keys.keys()
                self._moved |= {self._keys[key] for key in known}
                if len(known) < len(keys):  # journals that were left, or whose keys are to come
                    self._moved |= {id_ for id_, each in self._followed.items() if each.key is None}
            self._wake.set()

    async def _look_if_possible(self, job_ids: set[str], by: str) -> None:
        began = trio.current_time()
        new = list(self._new)
        with self._outage:
            if await self._look(job_ids.union(new), job_ids if by == "notify" else set()):
                self._core.metrics.wakes[by] += 1
        for job_id in new:
            if self._new.get(job_id, math.inf) <= began:
                del self._new[job_id]

    async def _look(self, job_ids: set[str], moved: set[str]) -> bool:
        """Look at these journals; return whether they have entries that were not known.

        If some are said to have moved, the entries are read in the same go.
        """
        for job_id in moved & self._followed.keys():
            job_ids |= self._trees[self._followed[job_id].tree]
        job_ids &= self._followed.keys()
        if not job_ids:
            return False
        looked_at = [self._followed[job_id] for job_id in job_ids]
        before = {followed: followed.known for followed in looked_at}
        cursors = {each.job_id: each.hinted for each in looked_at if moved and each.takes_hints}
        news = await self._follows.news(job_ids, cursors, READ_ENTRIES, READ_BYTES)
        for followed, known in before.items():
            self._learn(followed, news.extents.get(followed.job_id), known)
        await self._give_hints(news.owed)
        await self._read_on(looked_at)
        return any(followed.length > known for followed, known in before.items())

    def _learn(self, followed: Followed, extent: Extent | None, known: int) -> None:
        job = self._jobs.live.get(followed.job_id)
        if job is not None:
            followed.become(job.journal)  # this node goes on with it, after the end of another one
        elif extent is None:
            followed.become(None)  # which the sessions are told when they read
        elif followed.job_id in self._followed:
            if extent.length < known:
                facts = {"job_id": followed.job_id, "known": known, "left": extent.length}
                log.warning("the database has forgotten entries of a journal", extra=facts)
                followed.forget(extent.length)
            self._trees[followed.tree].discard(followed.job_id)
            followed.learn(extent)
            self._keys[extent.key] = followed.job_id
            self._trees[followed.tree].add(followed.job_id)

    async def _read_on(self, looked_at: Sequence[Followed]) -> None:
        """Read what else the sessions take hints of, and give them."""
        while wanted := _wanted(looked_at):
            try:
                owed = await self._core.store.owed(wanted, READ_ENTRIES, READ_BYTES)
            except JournalTrimmed as gone:
                self._known[gone.job_id].fall_behind()
                continue
            if not owed:
                return
            await self._give_hints(owed)

    async def _give_hints(self, owed: Sequence[Owed]) -> None:
        if owed:
            await self._hear()
        for job_id, entry in owed:
            followed = self._followed.get(job_id)
            if followed is not None:
                followed.hint(entry)


def _wanted(looked_at: Sequence[Followed]) -> Mapping[str, int]:
    """Return from where to read each journal that has entries to be hinted at."""
    first = {followed.job_id: followed.next_hint() for followed in looked_at}
    return {job_id: index for job_id, index in first.items() if index is not None}
