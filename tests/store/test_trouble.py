"""A store that cannot write for a while: writes wait, none is lost, and the log says why once."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise

import pytest
import trio

from arcp_trio.log_lines import fields_of
from arcp_trio.store.errors import StoreError
from arcp_trio.store.memory import MemoryStore
from arcp_trio.store.outage import CAUSE_SECONDS
from arcp_trio.store.queue import LAST_RETRY_SECONDS
from arcp_trio.store.writes import Write
from tests.store.engines import Feeder, running

in_trouble = pytest.mark.logs_error("store in trouble, .*the disk is full")


class FailingStore(MemoryStore):
    """A store on a disk that may be full."""

    def __init__(self) -> None:
        super().__init__()
        self.disk_is_full = False
        self.reason = "the disk is full"
        self.tries: list[tuple[float, list[Write]]] = []
        """The time and the writes of each try."""

    async def _commit(self, writes: Sequence[Write]) -> None:
        self.tries.append((trio.current_time(), list(writes)))
        if self.disk_is_full:
            raise StoreError(self.reason)
        await super()._commit(writes)


@pytest.fixture
async def failing() -> AsyncGenerator[FailingStore, None]:
    """A running store whose disk is full, with a job."""
    async with running(FailingStore()) as store:
        await Feeder(store).job().committed()
        store.disk_is_full = True
        store.tries.clear()
        yield store


@pytest.fixture
def feeding(failing: FailingStore) -> Feeder:
    """A feeder of `failing`."""
    feeder = Feeder(failing)
    feeder.job("K")
    return feeder


@in_trouble
async def test_a_group_is_tried_again_until_it_is_stored(
    failing: FailingStore, feeding: Feeder, autojump_clock: trio.abc.Clock
) -> None:
    """A group is tried again before later groups, with pauses that double up to a bound."""
    await failing.troubled()
    later = feeding.emit("K", 5)
    await trio.sleep(60)
    assert not later.stored.is_set()
    failing.disk_is_full = False
    with trio.fail_after(LAST_RETRY_SECONDS):
        await failing.recovered()
    await later.committed()
    owed = await failing.owed({"K": 0}, 10, 1_000)
    assert [entry.index for _, entry in owed] == [0, 1, 2, 3, 4]
    *tries, (_, last) = failing.tries
    assert [len(writes) for _, writes in tries] == [1] * len(tries)
    assert len(last) == 5
    times = [at for at, _ in tries]
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[:5] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8])
    assert pauses[6:] == pytest.approx([LAST_RETRY_SECONDS] * len(pauses[6:]))


@in_trouble
async def test_emitters_wait_while_it_lasts(
    failing: FailingStore, autojump_clock: trio.abc.Clock
) -> None:
    """A store in trouble is full, however little is queued; afterwards emitters go on."""
    Feeder(failing).job("K")
    full_before = failing.full
    await failing.troubled()
    assert (full_before, failing.full) == (False, True)
    gone_on: list[float] = []

    async def emitter() -> None:
        await failing.room("alice")
        gone_on.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(emitter)
        await trio.sleep(30)
        assert gone_on == []
        failing.disk_is_full = False
        await failing.recovered()
        now = trio.current_time()
    assert gone_on == [now] * 3
    assert not failing.full


@in_trouble
async def test_trouble_is_said_once_and_so_is_its_end(
    failing: FailingStore,
    feeding: Feeder,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.abc.Clock,
) -> None:
    """Each trouble and its end are logged once, however many tries there are."""
    for _ in range(2):
        await failing.troubled()
        trouble = failing.trouble
        await trio.sleep(60)
        failing.disk_is_full = False
        await failing.recovered()
        assert (trouble, failing.trouble) == ("the disk is full", None)
        failing.disk_is_full = True
        feeding.emit("K")
    records = [(r.levelno, r.getMessage(), fields_of(r)) for r in caplog.records]
    begin = "store in trouble, everything waits for it"
    assert (
        records
        == [
            (logging.ERROR, begin, {"error": "the disk is full"}),
            (logging.WARNING, "store works again", {}),
        ]
        * 2
    )


@in_trouble
@pytest.mark.logs_error("store in trouble, .*the volume is gone")
async def test_the_cause_that_is_said_is_the_latest(
    failing: FailingStore,
    feeding: Feeder,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.abc.Clock,
) -> None:
    """When the cause of a trouble changes, the log has a line with the new one."""
    await failing.troubled()
    failing.reason = "the volume is gone"
    await trio.sleep(10 * CAUSE_SECONDS)
    failing.disk_is_full = False
    await failing.recovered()
    assert [(r.getMessage(), fields_of(r).get("error")) for r in caplog.records] == [
        ("store in trouble, everything waits for it", "the disk is full"),
        ("store in trouble, everything waits for it", "the volume is gone"),
        ("store works again", None),
    ]


async def test_a_store_that_works_is_recovered(autojump_clock: trio.abc.Clock) -> None:
    """`recovered` returns at once for a store that works, and `troubled` waits."""
    store = FailingStore()
    with trio.fail_after(1):
        await store.recovered()
    with trio.move_on_after(1) as waited:
        await store.troubled()
    assert waited.cancelled_caught


@in_trouble
async def test_a_writer_can_be_ended_in_trouble(autojump_clock: trio.abc.Clock) -> None:
    """A writer that is cancelled in trouble leaves its group unstored."""
    async with running(FailingStore()) as store:
        store.disk_is_full = True
        group = Feeder(store).job()
        await store.troubled()
    assert not group.stored.is_set()
