"""From a scribe's batch to its frames: told of a lag, stored, and only then sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from arcp_trio.runtime.notices import back_pressure, store_trouble
from arcp_trio.store.writes import AddSubmitter, AppendLog
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire.features import Feature

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.session.batch import Batch
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.runtime.session.unsent import Series, Unsent
    from arcp_trio.store.queue import Group

BACK_PRESSURE_LAG: Final = 1_000
"""How many numbers a client that may acknowledge may be behind before it is told so (§6.5)."""


class Publisher:
    """Publishes the batches of one session: a client never sees a number that could be lost."""

    def __init__(self, core: Core, session: Session) -> None:
        self._session = session
        self._record = session.record
        self._store = core.store
        self._metrics = core.metrics
        self._clock = core.clock
        self._pressed = False
        """The client has been told that it is falling behind, and has not caught up since."""
        self._last: Group | None = None
        """The store's group of the last batch."""
        self._stored_seq = session.record.top
        """The highest number that the client may have been sent."""

    async def publish(self, batch: Batch) -> None:
        """Store a batch, then send it.

        Return as soon as the batch is being committed, so that the next one can be numbered.
        """
        if batch.logged:
            await self.put(batch).begun()
        elif batch.series:
            unsent = self._session.outbox.unsent
            await self.all_stored()
            if unsent is not None:
                unsent.extend(batch.series)

    def put(self, batch: Batch) -> Group:
        """Have the log row of a batch stored, and the batch sent after that."""
        session = self._session
        unsent = session.outbox.unsent
        if unsent is not None and self._record.top > batch.after_seq:
            self._press(batch)
        write = batch.write()
        told = session.accepting.intersection(write.watched)
        group = self._last = self._put(write, told)
        session.hold()
        group.then(partial(self._send, group, batch.series, unsent, write.top, told))
        return group

    def _put(self, write: AppendLog, told: Iterable[str]) -> Group:
        session = self._session
        if self._store.trouble is not None and session.attached is not None:
            session.attached.fail(store_trouble(self._store), CloseCode.FAILED)
        group = self._store.put(write)
        for job_id in told:
            # In the group of the promise: a session is a submitter only if it was told so.
            group = self._store.put(AddSubmitter(job_id, session.id))
        gone, moved = self._record.give_up_surplus()
        self._metrics.evicted_events += gone
        return moved or group

    def _send(
        self,
        group: Group,
        series: Sequence[Series],
        unsent: Unsent | None,
        top: int,
        told: Iterable[str],
    ) -> None:
        session = self._session
        session.acceptances_logged(told)
        if session.id in group.refused:
            self._metrics.refused_writes += 1
            session.went_elsewhere()  # what has its numbers now is for another runtime to say
        else:
            self._stored_seq = top
            if unsent is not None:
                unsent.extend(series)
        session.release()

    async def all_stored(self) -> None:
        """Wait until every batch is stored: what follows must be read or sent after them."""
        if self._last is not None:
            await self._last.committed()

    def _press(self, batch: Batch) -> None:
        """Tell a client that may acknowledge that it is falling behind, once per crossing."""
        # Numbers that the client cannot have acknowledged yet are not counted.
        lag = self._stored_seq - self._record.floor
        if lag <= BACK_PRESSURE_LAG // 2:
            self._pressed = False
        if lag <= BACK_PRESSURE_LAG or self._pressed:
            return
        if Feature.ACK in self._session.features:
            job = batch.job_that_goes_on()
            if job is not None:
                self._pressed = True
                batch.inline(back_pressure(*job, lag, self._clock.now()))
