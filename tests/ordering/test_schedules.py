"""Whatever clients do and when, nothing is lost, doubled or swapped.

Schedules are generated, carried out in virtual time, and compared with a model: a session's numbers
are 1 to N, a frame that comes again is the same frame, each job's events are those it emitted, in
order and with one end behind them, and across jobs the order is the order of emission. A schedule
that fails is printed whole; `carry_out` repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from arcp_trio import MemoryStore
from arcp_trio.runtime.connection import sender as sending
from arcp_trio.runtime.job import emitting, outcome
from arcp_trio.runtime.session import scribe
from arcp_trio.runtime.session.attachment import Attachment
from arcp_trio.runtime.session.batch import Batch
from arcp_trio.runtime.session.observing import Observing
from arcp_trio.runtime.session.outbox import Outbox, Promise
from arcp_trio.runtime.session.record import Record
from arcp_trio.runtime.session.session import Session
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.store.interface import Owed, Replay
from arcp_trio.store.queue import Group
from arcp_trio.store.records import Entry
from tests.ordering.programs import Program, observations, overflows, programs
from tests.ordering.world import carry_out

EXAMPLES = 2_000
SOAK_EXAMPLES = 50_000

_schedules = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(autouse=True, scope="module")
def _small_steps() -> Iterator[None]:
    """Make batches so small that schedules of a few dozen events cross their bounds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scribe, "BATCH_FRAMES", 8)
        patch.setattr(scribe, "BACK_PRESSURE_LAG", 6)
        patch.setattr(emitting, "EMITS_PER_CHECKPOINT", 3)
        patch.setattr(sending, "WRITE_FRAMES", 4)
        yield


_turns = st.random_module()
"""The seed of Trio's scheduler: it differs from example to example, and is repeated with it."""


@pytest.mark.timeout(600)  # to shrink what fails takes its time
@pytest.mark.spec("6.3-1", "6.3-3", "6.5-7", "6.7-2", "8.3-1", "8.3-2")
@_schedules
@given(programs, _turns)
def test_any_schedule(program: Program, turns: object) -> None:
    """Clients that drop, resume, take over, read slowly, cancel or stay away miss nothing."""
    carry_out(program)


@pytest.mark.soak
@settings(_schedules, max_examples=SOAK_EXAMPLES)
@given(programs, _turns)
def test_very_many_schedules(program: Program, turns: object) -> None:
    """The same for as many schedules as fit into some minutes."""
    carry_out(program)


@pytest.mark.timeout(600)
@pytest.mark.spec("6.2-4", "8.3-2")
@settings(_schedules, max_examples=EXAMPLES // 4)
@given(overflows, _turns)
def test_the_order_across_jobs_outlives_any_overflow(program: Program, turns: object) -> None:
    """Several jobs too fast for outbox and tail stay in the order of emission.

    A session without the feature `progress` gets no such event, and no gap where it would stand.
    """
    carry_out(program)


@pytest.mark.timeout(600)
@pytest.mark.spec("7.6-3", "7.6-4", "7.6-8", "8.3-2")
@settings(_schedules, max_examples=EXAMPLES // 2)
@given(observations, _turns)
def test_observers_see_each_event_once_and_in_order(program: Program, turns: object) -> None:
    """However often clients subscribe, unsubscribe, drop and resume, with history and without."""
    carry_out(program)


# -- variants with a defect: the model must find each


def _ends_jobs(patch: pytest.MonkeyPatch) -> None:
    """A lost connection takes the jobs along."""
    detach = Session.detach

    def detach_and_end(session: Session, attachment: Attachment) -> None:
        for watch in session.watches.values():
            if watch.job is not None:
                watch.job.end(outcome.cancelled("the connection was lost"))
        detach(session, attachment)

    patch.setattr(Session, "detach", detach_and_end)


def _skips(patch: pytest.MonkeyPatch) -> None:
    """A replay begins one number too late."""
    replay = MemoryStore.replay

    def late(self: MemoryStore, session_id: str, after: int, top: int, rows: int) -> Replay:
        return replay(self, session_id, after + 1, top, rows)

    patch.setattr(MemoryStore, "replay", late)


def _forgets_overflow(patch: pytest.MonkeyPatch) -> None:
    """A hint that finds the outbox full is dropped, and nobody remembers."""
    hint = Outbox.hint

    def forgetful(outbox: Outbox, watch: Watch, entry: Entry) -> None:
        behind = outbox.behind
        hint(outbox, watch, entry)
        outbox.behind = behind

    patch.setattr(Outbox, "hint", forgetful)


def _merges_by_job(patch: pytest.MonkeyPatch) -> None:
    """Catching up reads one job after the other."""
    owed = MemoryStore.owed

    async def by_job(
        self: MemoryStore, cursors: dict[str, int], entries: int, size: int
    ) -> Sequence[Owed]:
        found = await owed(self, cursors, entries, size)
        return sorted(found, key=lambda one: (one[0], one[1].index))

    patch.setattr(MemoryStore, "owed", by_job)


def _counts_what_it_hides(patch: pytest.MonkeyPatch) -> None:
    """An event whose feature was not negotiated takes a number all the same."""
    number = Batch.number

    def count(self: Batch, watch: Watch, entry: Entry) -> None:
        number(self, watch, entry)
        if entry.feature is not None and entry.feature not in self._session.features:
            self._record.take_numbers(1)

    patch.setattr(Batch, "number", count)


def _forgets_token(patch: pytest.MonkeyPatch) -> None:
    """The token before is gone as soon as there is a new one, whether or not that arrived."""
    rotate = Record.rotate

    def forget(
        self: Record, used: bytes, fresh: bytes, features: frozenset[str], dialect: str | None
    ) -> Group:
        group = rotate(self, used, fresh, features, dialect)
        self._spare_digests = ()
        return group

    patch.setattr(Record, "rotate", forget)


def _repeats_at_the_boundary(patch: pytest.MonkeyPatch) -> None:
    """History begins one event too early, with the one that `from_event_seq` names."""
    index_after = MemoryStore.index_after

    async def inclusive(self: MemoryStore, job_id: str, seq: int) -> int | None:
        index = await index_after(self, job_id, seq)
        return index and index - 1

    patch.setattr(MemoryStore, "index_after", inclusive)


def _loses_at_the_boundary(patch: pytest.MonkeyPatch) -> None:
    """What is emitted between the answer and the first hint is lost."""
    promise = Batch.promise

    def late(self: Batch, item: Promise) -> None:
        promise(self, item)
        if item.watch is not None and item.watch.observer and item.watch.job is not None:
            item.watch.cursor = item.watch.job.journal.length

    patch.setattr(Batch, "promise", late)


def _feeds_twice(patch: pytest.MonkeyPatch) -> None:
    """A client that observes its own job gets everything twice."""
    begin = Observing._begin

    def begin_anyway(self: Observing, *args: object) -> None:
        with pytest.MonkeyPatch.context() as there:
            there.setattr(self, "_has", lambda *_: False)
            begin(self, *args)  # type: ignore[arg-type]

    patch.setattr(Observing, "_begin", begin_anyway)


@pytest.mark.parametrize(
    ("defect", "schedules"),
    [
        (_ends_jobs, programs),
        (_forgets_token, programs),
        (_skips, programs),
        (_forgets_overflow, overflows),
        (_merges_by_job, overflows),
        (_counts_what_it_hides, overflows),
        (_repeats_at_the_boundary, observations),
        (_loses_at_the_boundary, observations),
        (_feeds_twice, observations),
    ],
)
def test_the_model_finds(
    defect: Callable[[pytest.MonkeyPatch], None], schedules: st.SearchStrategy[Program]
) -> None:
    """Each defect, put into the runtime, makes one of the schedules fail."""

    @settings(_schedules, phases=[Phase.generate], derandomize=True, database=None)
    @given(schedules, _turns)
    def any_schedule(program: Program, turns: object) -> None:
        carry_out(program)

    with pytest.MonkeyPatch.context() as patch:
        defect(patch)
        with pytest.raises((AssertionError, trio.TooSlowError)):
            any_schedule()
