"""Journals: entries that a session is owed, merged over its jobs, and entries given up."""

from __future__ import annotations

import pytest
import trio
from hypothesis import strategies as st

from arcp_trio.store.interface import JournalTrimmed, Store
from arcp_trio.store.records import Status
from arcp_trio.store.writes import AddSubmitter, CancelJob, StartJob, TrimJournal
from tests.store.engines import Engine, Feeder, anywhere, given_each_engine, job_row, tail

ALL = 10_000, 10_000_000


async def test_a_job_from_acceptance_to_end(store: Store, feeder: Feeder) -> None:
    """The row of a job has its status, its submitters and the length of its journal."""
    await feeder.job().committed()
    assert anywhere(await store.job("J")) == job_row()
    assert await store.owner("J") == job_row().principal
    assert await store.owner("K") is None
    store.put(StartJob("J", 1.0))
    await store.put(AddSubmitter("J", "T")).committed()
    row = await store.job("J")
    assert row is not None
    assert row.status == Status.RUNNING
    assert row.submitters == {"S", "T"}
    feeder.emit(count=3)
    await feeder.finish(at=7.0).committed()
    row = await store.job("J")
    assert row is not None
    assert (row.status, row.finished_at, row.length) == (Status.SUCCESS, 7.0, 4)
    assert row.submitters == {"S", "T"}


async def test_a_job_that_was_stopped(store: Store, feeder: Feeder) -> None:
    """The row of a job has the reason of its cancel, and who has stopped it."""
    feeder.job()
    await store.put(CancelJob("J", "why", "alice")).committed()
    row = await store.job("J")
    assert row is not None
    assert (row.cancelled, row.stopped_by) == ("why", "alice")


async def test_a_job_that_does_not_exist(store: Store) -> None:
    """An unknown job has no row, and its journal cannot be read."""
    assert await store.job("J") is None
    with pytest.raises(JournalTrimmed) as gone:
        await store.owed({"J": 0}, *ALL)
    assert gone.value.job_id == "J"


async def test_the_terminal_is_the_last_entry(store: Store, feeder: Feeder) -> None:
    """A cursor at the end is owed nothing before the job's end, and the terminal after it."""
    feeder.job()
    await feeder.emit(count=2).committed()
    assert await store.owed({"J": 2}, *ALL) == []
    await feeder.finish().committed()
    ((job_id, entry),) = await store.owed({"J": 2}, *ALL)
    assert (job_id, entry.index, entry.terminal) == ("J", 2, True)
    assert await store.owed({"J": 3}, *ALL) == []


async def test_nobody_is_owed_anything_without_cursors(store: Store) -> None:
    """Without cursors, no entry is owed."""
    assert await store.owed({}, *ALL) == []


async def test_a_single_entry_may_be_larger_than_the_bound(store: Store, feeder: Feeder) -> None:
    """An entry that is larger than a piece comes alone."""
    feeder.job()
    await feeder.emit(count=2).committed()
    owed = await store.owed({"J": 0}, 10, 1)
    assert [entry.index for _, entry in owed] == [0]


async def test_a_trimmed_journal_says_so(store: Store, feeder: Feeder) -> None:
    """Reads before the new start of a journal raise JournalTrimmed; later reads are unchanged."""
    feeder.job()
    feeder.job("K")
    feeder.emit(count=10)
    feeder.emit("K")
    store.put(TrimJournal("J", 4))
    await store.put(TrimJournal("J", 6)).committed()
    for cursor in range(6):
        with pytest.raises(JournalTrimmed) as gone:
            await store.owed({"K": 0, "J": cursor}, 1, 1)
        assert gone.value.job_id == "J"
    owed = await store.owed({"J": 6, "K": 0}, *ALL)
    assert [entry.tail for _, entry in owed] == [tail("J", n) for n in range(6, 10)] + [
        tail("K", 0)
    ]
    await feeder.emit().committed()
    ((_, entry),) = await store.owed({"J": 10}, *ALL)
    assert entry.tail == tail("J", 10)


async def test_trimming_a_journal_that_is_gone_hurts_nobody(store: Store, feeder: Feeder) -> None:
    """Trimming the journal of a forgotten job does nothing."""
    feeder.job()
    feeder.emit(count=10)
    feeder.finish()
    feeder.expire(before=1.0)
    await store.put(TrimJournal("J", 4)).committed()
    await feeder.session().committed()


@given_each_engine(
    emitted=st.lists(st.integers(0, 3), max_size=60),
    cursors=st.dictionaries(st.integers(0, 3), st.integers(0, 20)),
    entries=st.integers(1, 80),
    size=st.integers(1, 300),
)
def test_what_is_owed_comes_in_the_order_it_was_emitted(
    engine: Engine, emitted: list[int], cursors: dict[int, int], entries: int, size: int
) -> None:
    """The first entries at or after the cursors come in the order of emission, within bounds."""
    names = [f"J{number}" for number in range(4)]
    lengths = dict.fromkeys(names, 0)
    owed = []
    for job_id in (names[number] for number in emitted):
        index = lengths[job_id]
        lengths[job_id] += 1
        if index >= cursors.get(names.index(job_id), index + 1):
            owed.append((job_id, index))
    expected = owed[:entries]
    while len(expected) > 1 and sum(len(tail(*each)) for each in expected) > size:
        expected.pop()

    async def main() -> None:
        async with engine.running() as store:
            feeder = Feeder(store)
            for name in names:
                feeder.job(name)
            for number in emitted:
                feeder.emit(names[number])
            await store.flushed()
            found = await store.owed({names[n]: at for n, at in cursors.items()}, entries, size)
            assert [(job_id, entry.index) for job_id, entry in found] == expected

    trio.run(main)
