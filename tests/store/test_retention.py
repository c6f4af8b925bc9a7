"""Finished jobs and keys: how long they are kept, and that they leave nothing."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.store.interface import JournalTrimmed, Store
from arcp_trio.store.records import Range
from arcp_trio.store.retention import surplus
from arcp_trio.store.writes import DropSession
from tests.store.engines import Engine, Feeder, given_each_engine, job_row, key_row, read_all


async def kept(store: Store, *job_ids: str) -> list[str]:
    """Return those of the jobs that still exist."""
    await store.flushed()
    kept = [job_id for job_id in job_ids if await store.job(job_id) is not None]
    assert kept == [job_id for job_id in job_ids if await store.owner(job_id) is not None]
    return kept


async def can_be_read(store: Store, job_id: str) -> bool:
    """Return whether the job's journal can be read from its first entry on."""
    try:
        await store.owed({job_id: 0}, 10, 1_000)
    except JournalTrimmed:
        return False
    return True


# -- jobs


async def test_finished_jobs_go_by_age(store: Store, feeder: Feeder) -> None:
    """Jobs that ended at or before the given time are forgotten; running jobs never are."""
    for job_id in "ABCD":
        feeder.job(job_id)
    for job_id, at in (("A", 1.0), ("B", 2.0), ("C", 3.0)):
        feeder.finish(job_id, at=at)
    feeder.expire(before=2.0)
    assert await kept(store, *"ABCD") == ["C", "D"]
    assert not await can_be_read(store, "A")
    feeder.expire(before=1_000_000.0)
    assert await kept(store, *"ABCD") == ["D"]


async def test_jobs_go_by_request(store: Store, feeder: Feeder) -> None:
    """Finished jobs that are to be forgotten go, once; a watch still reads what it is owed."""
    feeder.session()
    for job_id in "ABCD":
        feeder.job(job_id)
    feeder.watch(job_id="B")
    for job_id in "ABC":
        feeder.finish(job_id)
    feeder.expire(forgotten=["A", "B", "D", "gone"])
    assert await kept(store, *"ABCD") == ["C", "D"]
    assert not await can_be_read(store, "A")
    assert await can_be_read(store, "B")
    feeder.expire(forgotten=["A", "B"])
    assert await kept(store, *"ABCD") == ["C", "D"]


async def test_finished_jobs_go_by_number(store: Store, feeder: Feeder) -> None:
    """Above the bound, the jobs that ended first are forgotten; running jobs do not count."""
    for job_id in "ABCDE":
        feeder.job(job_id)
    for job_id in "CABD":
        feeder.finish(job_id)
    feeder.expire(jobs=2)
    assert await kept(store, *"ABCDE") == ["B", "D", "E"]
    feeder.expire(jobs=2)
    assert await kept(store, *"ABCDE") == ["B", "D", "E"]
    feeder.expire(jobs=0)
    assert await kept(store, *"ABCDE") == ["E"]


async def test_principals_with_most_finished_jobs_lose_theirs(store: Store, feeder: Feeder) -> None:
    """Above the bound, the jobs that ended first go of the principals that have most."""
    for job_id, principal in zip("ABCDEFGHI", ["bob", *["alice"] * 5, *["carol"] * 3], strict=True):
        feeder.accept(job_row(job_id, principal=principal))
        feeder.finish(job_id)
    feeder.expire(jobs=7)
    assert await kept(store, *"ABCDEFGHI") == [*"ADEFGHI"]
    feeder.expire(jobs=4)
    assert await kept(store, *"ABCDEFGHI") == [*"AFHI"]
    feeder.expire(jobs=1)
    assert len(await kept(store, *"ABCDEFGHI")) == 1
    feeder.expire(jobs=0)
    assert await kept(store, *"ABCDEFGHI") == []


@given(st.dictionaries(st.text(max_size=2), st.integers(1, 20)), st.integers(0, 60))
def test_what_is_kept_is_shared_out(finished: dict[str, int], most: int) -> None:
    """As many jobs are kept as may be; who loses one is left with no fewer than anyone else."""
    lost = surplus(finished, most)
    left = {principal: count - lost.get(principal, 0) for principal, count in finished.items()}
    assert sum(left.values()) == min(most, sum(finished.values()))
    assert all(lost.values())
    for principal in lost:
        assert left[principal] >= max(left.values()) - 1


async def test_a_journal_is_kept_while_a_watch_needs_it(
    engine: Engine, store: Store, feeder: Feeder
) -> None:
    """After its retention, a job is visible only to the sessions that are owed its end."""
    for session_id in "ST":
        feeder.session(session_id, token=session_id.encode())
    feeder.job()
    for session_id in "ST":
        feeder.watch(session_id)
    feeder.emit()
    feeder.finish()
    feeder.expire(before=1.0)
    assert await kept(store, "J") == []
    assert await can_be_read(store, "J")
    feeder.log("S", [Range(1, "J", 0, 2)], top=2, cursors={"J": 2}, ended=["J"])
    await store.flushed()
    assert await can_be_read(store, "J")
    await store.put(DropSession("T")).committed()
    assert not await can_be_read(store, "J")
    await store.put(DropSession("S")).committed()
    assert await engine.left(store) == {}


async def test_a_journal_within_retention_needs_no_watch(store: Store, feeder: Feeder) -> None:
    """A journal within its retention is kept when its watches end."""
    feeder.session()
    feeder.job()
    feeder.emit(count=2)
    feeder.finish()
    feeder.number_all()
    await store.flushed()
    assert await can_be_read(store, "J")
    assert len(await read_all(store.replay("S", 0, 3, 1))) == 4
    await store.put(DropSession("S")).committed()
    assert await can_be_read(store, "J")


@pytest.mark.parametrize("observed", [False, True])
async def test_a_child_is_kept_for_who_is_owed_its_parent(
    engine: Engine, store: Store, feeder: Feeder, *, observed: bool
) -> None:
    """A child is kept for the submitters of its parent, and not for the parent's observers."""
    feeder.session()
    feeder.job("P")
    feeder.watch("S", "P", observed=["P"] if observed else [])
    feeder.accept(job_row("C"), parent="P")
    feeder.emit("C")
    feeder.finish("C")
    feeder.expire(before=1.0)
    await store.flushed()
    assert await can_be_read(store, "C") is not observed
    await store.put(DropSession("S")).committed()
    assert not await can_be_read(store, "C")


async def test_what_was_read_of_a_journal_may_go(store: Store, feeder: Feeder) -> None:
    """A replay does not need the journals that it has read."""
    feeder.session()
    feeder.job()
    feeder.emit()
    feeder.log("S", [Range(1, "J", 0, 1)], top=1, cursors={"J": 1}, watched=["J"])
    await store.flushed()
    replay = store.replay("S", 1, 1, 1)
    feeder.finish()
    feeder.expire(before=1.0)
    feeder.log("S", [Range(2, "J", 1, 1)], top=2, cursors={"J": 2}, ended=["J"])
    await store.flushed()
    assert not await can_be_read(store, "J")
    assert await read_all(replay) == []


async def test_who_subscribes_to_a_child_that_it_is_owed_observes_it(
    store: Store, feeder: Feeder
) -> None:
    """A session that subscribes to a child becomes an observer of it."""
    feeder.session()
    feeder.job("P")
    feeder.watch("S", "P")
    feeder.accept(job_row("C"), parent="P")
    await feeder.watch("S", "C", observed=["C"]).committed()
    row = await store.session("S")
    assert row is not None
    assert row.watches == {"P": 0, "C": 0}
    assert row.observed == {"C"}


# -- keys


async def test_a_key_is_there_with_its_job(store: Store, feeder: Feeder) -> None:
    """A key is stored with its job, for its principal alone."""
    row = key_row()
    await feeder.job(key=row).committed()
    assert await store.key("alice", "k", 0.0) == row
    assert await store.key("bob", "k", 0.0) is None
    assert await store.key("alice", "other", 0.0) is None


async def test_a_key_lives_as_long_as_it_may_and_as_its_job(store: Store, feeder: Feeder) -> None:
    """A key expires at its time, but not before its job's retention is over."""
    feeder.job(key=key_row(expires_at=100.0))
    feeder.finish(at=50.0)
    feeder.expire(now=200.0, before=49.0)
    await store.flushed()
    assert await store.key("alice", "k", 200.0) is not None
    feeder.expire(now=201.0, before=50.0)
    await store.flushed()
    assert await store.key("alice", "k", 201.0) is None


async def test_a_key_outlives_its_job(store: Store, feeder: Feeder) -> None:
    """A key stands for its job after the job's retention, until its own time."""
    feeder.job(key=key_row(expires_at=100.0))
    feeder.finish()
    feeder.expire(now=99.0, before=1.0)
    assert await kept(store, "J") == []
    found = await store.key("alice", "k", 99.9)
    assert found is not None
    assert found.job_id == "J"
    assert await store.key("alice", "k", 100.0) is None


async def test_an_expired_key_can_stand_for_another_job(store: Store, feeder: Feeder) -> None:
    """An expired key can stand for another job, and other keys still expire."""
    feeder.job("A", key=key_row("A", expires_at=100.0))
    feeder.job("B", key=key_row("B", key="l", expires_at=150.0))
    feeder.finish("A")
    feeder.finish("B")
    await feeder.expire(now=50.0, before=1.0).committed()
    feeder.job("C", key=key_row("C", expires_at=300.0))
    feeder.expire(now=200.0)
    await store.flushed()
    found = await store.key("alice", "k", 200.0)
    assert found is not None
    assert found.job_id == "C"
    assert await store.key("alice", "l", 149.0) is None  # swept: it was due at 150
    feeder.finish("C")
    feeder.expire(now=300.0, before=1.0)
    await store.flushed()
    assert await store.key("alice", "k", 299.0) is None


# -- nothing is left


@given_each_engine(
    jobs=st.lists(
        st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 2), st.booleans()),
        max_size=12,
    ),
    sweeps=st.lists(st.integers(0, 40), max_size=4),
)
def test_traffic_leaves_nothing_behind(
    engine: Engine, jobs: list[tuple[bool, int, int, bool]], sweeps: list[int]
) -> None:
    """After any traffic of jobs, keys, watches and sessions the store is empty again."""

    async def main() -> None:
        async with engine.running() as store:
            feeder = Feeder(store)
            for session_id in "ST":
                feeder.session(session_id, token=session_id.encode())
            for number, (keyed, expires_at, watchers, all_read) in enumerate(jobs):
                job_id = f"J{number}"
                key = key_row(job_id, key=f"k{number % 5}", expires_at=float(expires_at))
                feeder.job(job_id, key=key if keyed else None)
                feeder.emit(job_id, 2)
                for session_id in "ST"[:watchers]:
                    feeder.watch(session_id, job_id)
                feeder.finish(job_id, at=float(number))
                if all_read and watchers:
                    feeder.log("S", top=0, cursors={job_id: 3}, ended=[job_id])
            for now in sorted(sweeps):
                feeder.expire(now=float(now), before=now - 20.0, jobs=5)
            for session_id in "ST":
                store.put(DropSession(session_id))
            feeder.expire(now=40.0, before=40.0)
            await store.flushed()
            assert await engine.left(store) == {}

    trio.run(main)
