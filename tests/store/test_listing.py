"""Listings, also while jobs come and go between the pages (§6.6)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
import trio
from hypothesis import strategies as st
from msgspec.structs import replace

from arcp_trio.store.interface import Store
from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.memory import engine as memory_engine
from arcp_trio.store.records import JobRow, Status
from arcp_trio.store.writes import StartJob
from tests.store.engines import Engine, Feeder, given_each_engine, job_row


def accept(
    feeder: Feeder,
    job_id: str,
    created_at: float,
    *,
    principal: str = "alice",
    agent: str = "a@1.0.0",
) -> JobRow:
    """Accept a job."""
    row = replace(job_row(job_id), created_at=created_at, principal=principal, agent=agent)
    feeder.accept(row)
    return row


async def listed(store: Store, query: JobQuery) -> list[str]:
    """Return the ids of the jobs on a page."""
    await store.flushed()
    return [row.job_id for row in await store.jobs(query)]


@pytest.mark.spec("6.6-4")
async def test_one_sees_ones_own_jobs(store: Store, feeder: Feeder) -> None:
    """A listing has the jobs of one principal, or of all, newest first and then by id."""
    for job_id, created_at, principal in (
        ("A", 1.0, "alice"),
        ("B", 2.0, "bob"),
        ("C", 2.0, "alice"),
        ("D", 2.0, "alice"),
        ("E", 1.5, "alice"),
    ):
        accept(feeder, job_id, created_at, principal=principal)
    assert await listed(store, JobQuery(principal="alice", limit=10)) == ["D", "C", "E", "A"]
    assert await listed(store, JobQuery(principal="bob", limit=10)) == ["B"]
    assert await listed(store, JobQuery(principal="carol", limit=10)) == []
    assert await listed(store, JobQuery(principal=None, limit=10)) == ["D", "C", "B", "E", "A"]


async def test_a_page_is_bounded_in_bytes(store: Store, feeder: Feeder) -> None:
    """A page ends with the first job that exceeds its size."""
    for place, size in enumerate([10, 600, 600, 600, 10]):
        row = replace(job_row(f"J{place}"), created_at=float(place), accepted=b"x" * size)
        feeder.accept(row)
    for size, page in (
        (0, ["J4"]),
        (10, ["J4", "J3"]),
        (700, ["J4", "J3", "J2"]),
        (10_000, ["J4", "J3", "J2", "J1", "J0"]),
    ):
        query = JobQuery(principal="alice", limit=10, size=size)
        assert await listed(store, query) == page


async def test_a_row_in_a_listing_is_the_jobs_row(store: Store, feeder: Feeder) -> None:
    """The row in a listing is the row of the job."""
    feeder.session()
    feeder.job("A")
    feeder.job("B")
    store.put(StartJob("B", 1.0))
    for job_id in "AB":
        feeder.emit(job_id, 3)
    feeder.finish("A", at=5.0)
    await feeder.number_all(job_id="A").committed()
    rows = await store.jobs(JobQuery(principal="alice", limit=10))
    assert [row.status for row in rows] == [Status.RUNNING, Status.SUCCESS]
    assert [row.last_seq for row in rows] == [0, 4]
    assert rows == [await store.job("B"), await store.job("A")]


@pytest.mark.spec("6.6-2")
async def test_filters(store: Store, feeder: Feeder) -> None:
    """Filters by status, agent, agent with version, and time without its ends can be combined."""
    agents = ("a@1.0.0", "a@2", "ab@1.0.0", "a", "A@1.0.0")
    for number, agent in enumerate(agents, 1):
        accept(feeder, f"J{number}", float(number), agent=agent)
    store.put(StartJob("J2", 1.0))
    store.put(StartJob("J3", 1.0))
    whole = JobQuery(principal="alice", limit=10)

    async def found(**filters: object) -> list[str]:
        return await listed(store, attrs.evolve(whole, **filters))  # type: ignore[arg-type]

    assert await found(agent="a") == ["J4", "J2", "J1"]
    assert await found(agent="a@2") == ["J2"]
    assert await found(agent="a@") == []
    assert await found(agent="a@1") == []
    assert await found(statuses=frozenset({Status.RUNNING})) == ["J3", "J2"]
    assert await found(statuses=frozenset({Status.PENDING})) == ["J5", "J4", "J1"]
    assert await found(statuses=frozenset({Status.PENDING, Status.RUNNING})) == [
        f"J{number}" for number in (5, 4, 3, 2, 1)
    ]
    assert await found(statuses=frozenset()) == []
    assert await found(created_after=2.0) == ["J5", "J4", "J3"]
    assert await found(created_before=2.0) == ["J1"]
    assert await found(created_after=2.0, created_before=4.0) == ["J3"]
    assert await found(agent="a", statuses=frozenset({Status.PENDING}), created_after=1.0) == ["J4"]


async def test_finished_jobs_are_listed_until_they_expire(store: Store, feeder: Feeder) -> None:
    """An expired job is in no listing, even while a watch still needs its journal."""
    feeder.session()
    for job_id in "ABC":
        feeder.job(job_id)
    feeder.watch(job_id="A")
    for job_id in "AB":
        feeder.finish(job_id)
    query = JobQuery(principal="alice", limit=10)
    assert await listed(store, query) == ["C", "B", "A"]
    feeder.expire(before=1.0)
    assert await listed(store, query) == ["C"]
    assert await store.owed({"A": 0}, 10, 1_000)


MOMENTS = st.integers(0, 4).map(float)
"""A few times, so that many jobs share one, and some jobs are stored after later ones."""

QUERIES = st.builds(
    JobQuery,
    principal=st.sampled_from(["alice", "bob", None]),
    statuses=st.sampled_from([frozenset(Status), frozenset({Status.PENDING})]),
    agent=st.sampled_from([None, "a", "a@1"]),
    created_after=st.sampled_from([-1.0, 1.0]),
    created_before=st.sampled_from([10.0, 3.0]),
    limit=st.integers(1, 4),
)
JOBS = st.lists(
    st.tuples(
        MOMENTS,
        st.sampled_from(["alice", "bob"]),
        st.sampled_from(["a@1", "a@2", "b@1"]),
        st.booleans(),
    ),
    max_size=15,
)


@pytest.mark.spec("6.6-3")
@given_each_engine(before=JOBS, query=QUERIES, meanwhile=st.lists(JOBS.filter(bool), max_size=3))
def test_pages_are_stable(
    engine: Engine,
    before: Sequence[tuple[float, str, str, bool]],
    query: JobQuery,
    meanwhile: Sequence[Sequence[tuple[float, str, str, bool]]],
) -> None:
    """Each job that exists all the time is on exactly one page, in order."""

    async def main() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory_engine, "LOOK_ITEMS", 2)
            async with engine.running() as store:
                await check(store)

    async def check(store: Store) -> None:
        feeder = Feeder(store)
        rows: dict[str, JobRow] = {}

        def add(jobs: Sequence[tuple[float, str, str, bool]]) -> None:
            for created_at, principal, agent, started in jobs:
                job_id = f"J{len(rows) * 7 % 100:02}"
                row = accept(feeder, job_id, created_at, principal=principal, agent=agent)
                if started:
                    store.put(StartJob(job_id, 1.0))
                    row = replace(row, status=Status.RUNNING)
                rows[job_id] = row

        def order(row: JobRow) -> tuple[float, str]:
            return row.created_at, row.job_id

        add(before)
        stay = set(rows)
        found: list[JobRow] = []
        page_query, changes = query, list(meanwhile)
        while True:
            await store.flushed()
            page = await store.jobs(page_query)
            assert len(page) <= query.limit
            found += page
            if not page:
                break
            page_query = attrs.evolve(page_query, after=order(page[-1]))
            if changes:
                add(changes.pop())
                gone = page[-1].job_id  # also the job after which the next page begins
                feeder.finish(gone, at=-1.0)
                feeder.expire(before=0.0)
        assert [order(row) for row in found] == sorted(map(order, found), reverse=True)
        assert len({row.job_id for row in found}) == len(found)
        wanted = {
            row.job_id
            for row in rows.values()
            if query.principal in (row.principal, None)
            and row.status in query.statuses
            and (query.agent in (None, row.agent) or row.agent.startswith(f"{query.agent}@"))
            and query.created_after < row.created_at < query.created_before
        }
        assert wanted & stay <= {row.job_id for row in found} <= wanted

    trio.run(main)
