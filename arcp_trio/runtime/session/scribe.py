"""The scribe: the one consumer of a session's outbox, and the only one to take numbers (§8.3)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.farewell import Farewell
from arcp_trio.runtime.notices import refusal, store_trouble
from arcp_trio.runtime.session.batch import BATCH_BYTES, BATCH_FRAMES, Batch
from arcp_trio.runtime.session.outbox import (
    Answer,
    Attach,
    Hints,
    Item,
    Leave,
    Look,
    OutboxItem,
    Promise,
    Repeat,
    Unwatch,
)
from arcp_trio.runtime.session.publisher import Publisher
from arcp_trio.runtime.session.session import Session
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.store.queue import Group
from arcp_trio.store.records import Owed
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire.errors import ArcpError, JobNotFound, ResumeWindowExpired

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.other_nodes import OtherNodes

log = logging.getLogger(__name__)

FORGOTTEN_SECONDS: Final = 0.1
"""Pause between two reads of entries that the store has forgotten, until that is found out."""


class Scribe:
    """Numbers what a session is owed while a connection is attached and has room.

    A hint below its watch's cursor is skipped, and one at the cursor is numbered. A hint above it
    means that the session is behind: then the scribe reads the journals, merged in the order in
    which the jobs emitted, until the session is owed nothing.

    It does not wait for what it has numbered to be stored, but goes on with what comes next; the
    group comes to the outbox when it is stored, and then its frames are sent.
    """

    def __init__(self, core: Core, jobs: Jobs, session: Session, others: OtherNodes | None) -> None:
        self._session = session
        self._others = others
        self._record = session.record
        self._outbox = session.outbox
        self._store = core.store
        self._jobs = jobs
        self._publisher = Publisher(core, session)
        self._leave: Leave | None = None
        """Carried out once the session is caught up."""

    async def run(self) -> None:
        """Consume the outbox for as long as the session is needed in memory."""
        session, outbox = self._session, self._outbox
        while session.needed:
            # No variable here: what was taken may keep a job in memory that has ended.
            await self._take(outbox.drain() if self._catching_up else await outbox.take())
            if self._catching_up:
                await self._publisher.all_stored()  # so that the client's room is known
            if outbox.unsent is not None:
                await outbox.unsent.room()
            if self._catching_up:
                await self._catch_up()

    @property
    def _catching_up(self) -> bool:
        return self._outbox.unsent is not None and self._outbox.behind

    @property
    def _owed_something(self) -> bool:
        return any(watch.behind for watch in self._session.watches.values())

    # -- numbering

    async def _take(self, items: Sequence[OutboxItem]) -> None:
        self._publisher.send_stored()
        if len(items) == 1 and isinstance(items[0], Group):
            return
        batch, told = Batch(self._session, self._jobs), list[Item]()
        for item in items:
            match item:
                case Hints():
                    if not self._outbox.behind:
                        batch.number_all(item.watch, item.entries)
                    continue
                case Group() | Look():
                    continue
                case Answer() | Promise():
                    self._say(batch, item)
                case Repeat():
                    # First the row of the log in which the watch may have ended.
                    self._publisher.publish(batch)
                    batch = Batch(self._session, self._jobs)
                    self._repeat(batch, item)
                case Unwatch():
                    batch.unwatch(item.watch)
                    self._publisher.publish(batch)
                    batch = Batch(self._session, self._jobs)
                case Attach() | Leave():
                    self._publisher.publish(batch)
                    batch = Batch(self._session, self._jobs)
                    await self._switch(batch, item)
            told.append(item)
        self._outbox.numbered(items)
        self._publisher.publish(batch, told)

    async def _catch_up(self) -> None:
        await self._publisher.all_stored()  # so are the journals to be read, even a new job's
        watches = self._session.watches.values()
        lost_track = next((watch for watch in watches if watch.lost_track), None)
        if lost_track is not None:
            await self._give_up(lost_track)
            return
        if any(watch.may_be_behind for watch in watches) and not await self._read_journals():
            return
        if self._outbox.unsent is not None and not self._owed_something:
            self._outbox.caught_up()
            if self._leave is not None:
                await self._publisher.all_stored()
                self._part(self._leave)

    async def _read_journals(self) -> bool:
        """Read and number what the session is owed; return False if nothing came of that."""
        session = self._session
        # The cursors of all watches: a job that is not behind now may emit before the read.
        cursors = {job_id: watch.cursor for job_id, watch in session.watches.items()}
        follows_on = any(watch.follows and watch.behind for watch in session.watches.values())
        try:
            owed = await session.reads.owed(cursors, BATCH_FRAMES, BATCH_BYTES)
            if self._others is not None and session.asks:
                await self._others.hear()  # what comes of a command follows its answer
        except JournalTrimmed as gone:
            await self._give_up(session.watches[gone.job_id])
            return False
        except Fenced:
            await trio.sleep_forever()  # this node is about to end, and the session here with it
        except StoreError as error:
            log.warning("catching up failed", extra=session.facts | {"error": str(error)})
            session.lose_connection(store_trouble(self._store))
            return False
        if not owed:
            await self._store.flushed()
            if follows_on:
                await trio.sleep(FORGOTTEN_SECONDS)
        # Items told before these entries were emitted come first, such as the promise that a
        # job is cancelled; and a job that has begun meanwhile may have emitted in between.
        await self._take(self._outbox.drain())
        if session.watches.keys() - cursors.keys():
            return False
        self._publisher.publish(self._owed_batch(owed))
        return True

    def _owed_batch(self, owed: Sequence[Owed]) -> Batch:
        batch = Batch(self._session, self._jobs)
        # Events of a child may belong before the entries that follow its acceptance.
        child = next((at for at, (_, entry) in enumerate(owed, 1) if entry.child is not None), None)
        for job_id, run in groupby(owed[:child], key=itemgetter(0)):
            watch = self._session.watches.get(job_id)
            if watch is not None:  # else it is a subscription that has just ended
                batch.number_all(watch, [entry for _, entry in run])
        return batch

    def _say(self, batch: Batch, item: Answer | Promise) -> None:
        if isinstance(item, Promise):
            batch.promise(item)
        elif item.attachment is self._session.attached:
            batch.answer(item.tail)

    def _repeat(self, batch: Batch, item: Repeat) -> None:
        """Say an acceptance again, and have the job's terminal follow it."""
        if item.watch.job_id in self._session.watches:
            self._say(batch, Answer(item.attachment, item.tail))
        else:
            item.watch.skip_to_terminal()
            self._say(batch, Promise(item.tail, item.watch))

    async def _switch(self, batch: Batch, item: Attach | Leave) -> None:
        """Begin to number for another connection, or have the one there is closed."""
        await self._publisher.all_stored()
        if isinstance(item, Attach):
            self._attach(item)
            for watch in item.unseen:
                self._end_subscription(batch, watch, JobNotFound("there is no such job"))
        else:
            if item.stored is not None and item.attachment is self._session.attached:
                await item.stored.committed()
            self._part(item)

    def _attach(self, item: Attach) -> None:
        session = self._session
        if item.attachment.over:
            return
        session.attach(item.attachment)
        self._leave = None
        top, log_rows = self._record.top, self._record.log_rows
        reads = self._store.for_principal(session.principal, urgent=True)
        item.attachment.begin(reads.replay(session.id, item.after_seq, top, log_rows))

    def _part(self, item: Leave) -> None:
        unsent = self._outbox.unsent
        if item.attachment is not self._session.attached or unsent is None:
            return
        if item.caught_up and self._outbox.behind:
            self._leave = item
        else:
            unsent.end(item.farewell)

    async def _give_up(self, watch: Watch) -> None:
        """Tell the client that events it is owed are gone, rather than go on with a hole.

        This ends a subscription; for a job that the session submitted it ends the session, whose
        watch stays behind, so that a connection already on its way here is told the same.
        """
        session = self._session
        error = ResumeWindowExpired(f"events of {watch.job_id} are gone from the store")
        if watch.observer:
            batch = Batch(session, self._jobs)
            self._end_subscription(batch, watch, error)
            self._publisher.publish(batch)
            return
        watch.leave_journal()
        session.lose("events are gone")
        outbox = self._outbox
        outbox.caught_up()
        if outbox.unsent is not None:
            told = refusal(error, job_id=watch.job_id)
            outbox.unsent.end(Farewell(CloseCode.POLICY, "events are gone", told))

    def _end_subscription(self, batch: Batch, watch: Watch, error: ArcpError) -> None:
        """End a subscription, and have the client told why."""
        batch.unwatch(watch)
        batch.promise(Promise(refusal(error, job_id=watch.job_id)))
