"""From a scribe's batch to its frames: told of a lag, stored, and only then sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from arcp_trio.runtime.notices import back_pressure, store_trouble
from arcp_trio.store.writes import AddSubmitter, AppendLog
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire.features import Feature

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.session.batch import Batch
    from arcp_trio.runtime.session.outbox import Item
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.runtime.session.unsent import Series, Unsent
    from arcp_trio.store.queue import Group

_NONE: Final = frozenset[str]()

BACK_PRESSURE_LAG: Final = 1_000
"""How many numbers a client that may acknowledge may be behind before it is told so (§6.5)."""


@attrs.define(eq=False)
class _Unstored:
    """What is sent once a group is stored."""

    group: Group | None
    """None if nothing was ever stored: it can be sent at once."""
    series: Sequence[Series]
    unsent: Unsent | None
    top: int
    accepted: frozenset[str]
    """Jobs with a key whose acceptances are among it."""
    told: Sequence[Item]
    """The items that it comes of, beside hints."""


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
        self._unstored: deque[_Unstored] = deque()
        self._stored_seq = session.record.top
        """The highest number that the client may have been sent."""

    def publish(self, batch: Batch, told: Sequence[Item] = ()) -> None:
        """Have a batch stored, and sent after that; it comes of the items `told`, and of hints."""
        session, accepted = self._session, _NONE
        unsent = session.outbox.unsent
        if batch.logged:
            if unsent is not None and self._record.top > batch.after_seq:
                self._press(batch)
            write = batch.write()
            if write.watched:
                accepted = session.accepting.intersection(write.watched)
            self._put(write, accepted)
            for job_id in write.watched:
                session.promises.pop(job_id, None)
        if batch.logged or batch.series or told:
            session.hold()
            self._unstored.append(
                _Unstored(self._last, batch.series, unsent, self._record.top, accepted, told)
            )
            self.send_stored()

    def _put(self, write: AppendLog, accepted: Iterable[str]) -> None:
        session = self._session
        if self._store.trouble is not None and session.attached is not None:
            session.attached.fail(store_trouble(self._store), CloseCode.FAILED)
        group = self._store.put(write)
        for job_id in accepted:
            # In the group of the promise: a session is a submitter only if it was told so.
            self._store.put(AddSubmitter(job_id, session.id))
        self._metrics.evicted_events += self._record.give_up_surplus()
        if group is not self._last:
            group.tell(session.outbox.send)
        self._last = group

    def send_stored(self) -> None:
        """Send what is stored."""
        while self._unstored:
            group = self._unstored[0].group
            if group is not None and not group.stored.is_set():
                return
            self._send(self._unstored.popleft())

    def _send(self, stored: _Unstored) -> None:
        session = self._session
        session.acceptances_logged(stored.accepted)
        if stored.group is not None and session.id in stored.group.refused:
            self._metrics.refused_writes += 1
            session.went_elsewhere()  # what has its numbers now is for another runtime to say
        else:
            self._stored_seq = stored.top
            if stored.unsent is not None:
                stored.unsent.extend(stored.series)
        session.outbox.dealt_with(stored.told)
        session.release(1 + len(stored.told))

    async def all_stored(self) -> None:
        """Wait until every batch is sent: what follows must be read or sent after them."""
        if self._last is not None:
            await self._last.committed()
        self.send_stored()

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
