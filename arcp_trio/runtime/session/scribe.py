"""The scribe: a session's one consumer, the only place where numbers are taken (§8.3)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from arcp_trio.runtime.notices import FAILED, back_pressure, refusal, store_trouble
from arcp_trio.runtime.session.batch import Batch
from arcp_trio.runtime.session.outbox import (
    Answer,
    Attach,
    Hints,
    Leave,
    OutboxItem,
    Promise,
    Unwatch,
)
from arcp_trio.runtime.session.session import Session
from arcp_trio.runtime.session.unsent import POLICY, Farewell, Series, Unsent, UnsentBytes
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.store.errors import StoreError
from arcp_trio.store.interface import JournalTrimmed, Owed
from arcp_trio.store.queue import Group
from arcp_trio.store.records import HOLES, Entry
from arcp_trio.store.writes import AddSubmitter, AppendLog, MoveFloor
from arcp_trio.wire.errors import ResumeWindowExpired

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs

log = logging.getLogger(__name__)

BATCH_FRAMES = 1_024
BATCH_BYTES = 1024 * 1024
"""A batch is what is there, up to these; it never waits for more."""

BACK_PRESSURE_LAG = 1_000
"""Numbers that an acknowledging client may be behind before it is told so (§6.5)."""


class Scribe:
    """Numbers what a session is owed while a connection is attached and its tail has room.

    A hint below its watch's cursor is skipped, one at the cursor is numbered, one above means the
    session is behind: then journals are read, merged in the order the jobs emitted, until nothing
    is owed.
    """

    def __init__(self, core: Core, jobs: Jobs, session: Session, unsent_bytes: UnsentBytes) -> None:
        self._session = session
        self._store = core.store
        self._limits = core.limits
        self._unsent_bytes = unsent_bytes
        self._metrics = core.metrics
        self._clock = core.clock
        self._live = jobs.live
        self._pressed = False
        self._unseen: Group | None = None
        """What the last batch is stored with."""
        self._seen_seq = session.top
        """The highest number that was let be seen."""
        self._leave: Leave | None = None
        """Waits for the session to be caught up."""

    async def run(self) -> None:
        """Consume the outbox for as long as the session is needed in memory."""
        session = self._session
        while session.needed:
            if not self._catching_up:
                await session.outbox_filled()
            await self._take(session.take())
            if self._catching_up:
                await self._all_seen()  # what is to be read is there, a new job at least
            if session.tail is not None:
                await session.tail.room()
            if self._catching_up:
                await self._catch_up()

    @property
    def _catching_up(self) -> bool:
        return self._session.tail is not None and self._session.behind

    @property
    def _owed_something(self) -> bool:
        return any(watch.behind for watch in self._session.watches.values())

    async def _take(self, items: Sequence[OutboxItem]) -> None:
        session = self._session
        batch = Batch(session, self._live)
        hints, told = 0, len(items)
        for item in items:
            match item:
                case Hints():
                    hints, told = hints + len(item.entries), told - 1
                    if not session.behind:
                        self._number_all(batch, item.watch, item.entries)
                case Answer():
                    if item.connection is session.connection:
                        batch.answer(item.tail)
                case Promise():
                    batch.promise(item)
                case Unwatch():
                    batch.unwatch(item.watch)
                    await self._publish(batch)
                    batch = Batch(session, self._live)
                case Attach():
                    await self._publish(batch)
                    batch = Batch(session, self._live)
                    await self._all_seen()
                    self._attach(item)
                case Leave():
                    await self._publish(batch)
                    batch = Batch(session, self._live)
                    await self._all_seen()
                    self._part(item)
        session.taken(hints, 0)  # before waiting, in which the outbox fills again
        await self._publish(batch)
        session.taken(0, told)

    async def _catch_up(self) -> None:
        session = self._session
        if self._owed_something:
            # Of all that it watches: who is not behind now may have emitted by the time of reading.
            cursors = {job_id: watch.cursor for job_id, watch in session.watches.items()}
            try:
                owed = await self._store.owed(cursors, BATCH_FRAMES, BATCH_BYTES)
            except JournalTrimmed as gone:
                await self._give_up(gone)
                return
            except StoreError:
                log.exception("catching up failed", extra=session.facts)
                self._lose_connection()
                return
            if not owed:
                await self._store.flushed()
            # What was told before these were emitted, that a job is cancelled for one, comes first;
            # and what a job emitted that has begun meanwhile may belong in between.
            await self._take(session.take())
            if session.watches.keys() - cursors.keys():
                return
            await self._publish(self._owed_batch(owed))
        if session.tail is not None and not self._owed_something:
            session.behind = False
            if self._leave is not None:
                await self._all_seen()
                self._part(self._leave)

    def _owed_batch(self, owed: Sequence[Owed]) -> Batch:
        batch = Batch(self._session, self._live)
        # What a child has emitted since may belong before what is behind its acceptance.
        child = next((at for at, (_, entry) in enumerate(owed, 1) if entry.child is not None), None)
        for job_id, run in groupby(owed[:child], key=itemgetter(0)):
            watch = self._session.watches.get(job_id)
            if watch is not None:  # else a subscription that has just ended
                self._number_all(batch, watch, [entry for _, entry in run])
        return batch

    def _number_all(self, batch: Batch, watch: Watch, entries: Sequence[Entry]) -> None:
        """Number what a job emitted in a row: in one go, if nothing about it is special."""
        session = self._session
        tails = [entry.tail for entry in entries if _is_plain(entry)]
        if (
            len(tails) == len(entries)
            and entries[0].index == watch.cursor
            and entries[-1].index == watch.cursor + len(entries) - 1
            and session.tail is not None
            and batch.size + sum(map(len, tails)) <= 2 * BATCH_BYTES
        ):
            batch.number_events(watch, tails)
            return
        behind = session.behind
        for entry in entries:
            self._number(batch, watch, entry)
            if session.behind and not behind:
                return  # what is to be read now, a child's for one, may belong before the rest

    def _number(self, batch: Batch, watch: Watch, entry: Entry) -> None:
        """Number an entry, if it is the one the watch is owed and somebody is there to read it."""
        session = self._session
        if entry.index != watch.cursor or session.tail is None or batch.size > 2 * BATCH_BYTES:
            if entry.index >= watch.cursor:
                session.behind = True
            return
        batch.number(watch, entry)

    async def _publish(self, batch: Batch) -> None:
        """Store a batch, then let it be seen: what has a number is never forgotten.

        Returns as soon as its group is being committed: what was emitted meanwhile can be numbered
        for the next.
        """
        session, tail = self._session, self._session.tail
        if tail is not None and session.top > batch.after_seq:
            self._press(batch)
        if batch.logged:
            write = batch.write()
            told = session.accepting.intersection(write.watched)
            group = self._unseen = self._put(write, told)
            session.storing += 1
            group.then(partial(self._let_be_seen, batch.series, tail, write.top, told))
            await group.begun()
        elif batch.series:
            await self._all_seen()
            if tail is not None:
                tail.extend(batch.series)

    def _put(self, write: AppendLog, told: Iterable[str]) -> Group:
        session = self._session
        if self._store.trouble is not None and session.connection is not None:
            session.connection.fail(store_trouble(), FAILED)
        group = self._store.put(write)
        for job_id in told:
            # With the acceptance, or neither: who says that it was told, was.
            group = self._store.put(AddSubmitter(job_id, session.id))
        too_many = session.top - session.floor - self._limits.unacked_frames
        if too_many > 0:
            session.floor += too_many
            self._metrics.evicted_events += too_many
            group = self._store.put(MoveFloor(session.id, session.floor, acked=False))
        return group

    def _let_be_seen(
        self, series: Sequence[Series], tail: Unsent | None, top: int, told: Iterable[str]
    ) -> None:
        session = self._session
        session.storing -= 1
        session.accepting.difference_update(told)
        self._seen_seq = top
        if tail is not None:
            tail.extend(series)

    async def _all_seen(self) -> None:
        """Wait until every batch is stored, for what must come behind or be read with them."""
        if self._unseen is not None:
            await self._unseen.committed()

    def _press(self, batch: Batch) -> None:
        """Tell a client that acknowledges, once per crossing, that it is falling behind."""
        session = self._session
        # What nobody could have acknowledged yet is not counted.
        lag = self._seen_seq - session.floor
        if lag <= BACK_PRESSURE_LAG // 2:
            self._pressed = False
        elif lag > BACK_PRESSURE_LAG and session.acked and not self._pressed:
            job = batch.job_that_goes_on()
            if job is not None:
                self._pressed = True
                batch.inline(back_pressure(job.id, job.trace_id, lag, self._clock.now()))

    def _attach(self, item: Attach) -> None:
        session = self._session
        if item.connection.over:
            return
        session.connection = item.connection
        session.window_ends = None
        tail = Unsent(self._limits, self._unsent_bytes, item.connection.wake)
        session.set_tail(tail)
        self._leave = None
        replay = self._store.replay(session.id, item.after_seq, session.top, session.log_rows)
        item.connection.begin(tail, item.welcome, replay, item.after_seq)

    def _part(self, item: Leave) -> None:
        session = self._session
        if item.connection is not session.connection or session.tail is None:
            return
        if item.caught_up and session.behind:
            self._leave = item
        else:
            session.tail.end(item.farewell)

    def _lose_connection(self) -> None:
        """Go on as if nobody were attached: what the session is owed is read for the next one."""
        session = self._session
        if session.connection is not None:
            session.connection.fail(store_trouble(), FAILED)
        session.set_tail(None)

    async def _give_up(self, gone: JournalTrimmed) -> None:
        """Owed events are gone: whoever is owed them is told, rather than go on with a hole.

        That ends a subscription; and the session of who submitted the job. Its watch stays behind:
        a connection that is on its way here meets the same, and is told.
        """
        session = self._session
        watch = session.watches[gone.job_id]
        error = ResumeWindowExpired(f"events of {gone.job_id} are gone, before they could be sent")
        told = refusal(error, job_id=gone.job_id)
        if watch.observer:
            batch = Batch(session, self._live)
            batch.unwatch(watch)
            batch.promise(Promise(told))
            await self._publish(batch)
            return
        watch.leave_job()
        session.over = True
        session.behind = False
        if session.tail is not None:
            session.tail.end(Farewell(POLICY, "events are gone", told))


def _is_plain(entry: Entry) -> bool:
    """Whether it is a frame for any session, with no hole in it, and the job goes on behind it."""
    return (
        entry.feature is None
        and entry.child is None
        and not entry.terminal
        and entry.tail[0] != HOLES
    )
