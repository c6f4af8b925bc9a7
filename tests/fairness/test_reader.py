"""Whatever one principal has read from the store, another one's reads come next."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from arcp_trio import SqliteStore
from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.records import JobRow, Status
from arcp_trio.store.sqlite import _listing
from arcp_trio.store.sqlite.reader import SqliteReader
from arcp_trio.testing import Peer
from tests.flow.paging import ended_jobs
from tests.stage import BOB, Stage, simple_agents
from tests.store.engines import running

SESSIONS = 20
LISTINGS = 25


@pytest.fixture
def overtaken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return, for each of bob's reads, how many listings have been read while it waited."""
    begun, counts = 0, list[int]()
    list_jobs, read = _listing.jobs, SqliteReader._read

    def counting(db: sqlite3.Connection, query: JobQuery) -> Sequence[JobRow]:
        nonlocal begun
        begun += 1
        return list_jobs(db, query)

    async def waiting(reader: SqliteReader, act: Callable[..., Any], *args: Any) -> Any:
        before = begun
        result = await read(reader, act, *args)
        if reader._principal == "bob":
            counts.append(begun - before)
        return result

    monkeypatch.setattr(_listing, "jobs", counting)
    monkeypatch.setattr(SqliteReader, "_read", waiting)
    return counts


async def ask_for_lists(peer: Peer, begun: trio.Event) -> None:
    """Ask for long listings, and take the first one."""
    for _ in range(LISTINGS):
        await peer.send("session.list_jobs", {"page_size": 1_000, "filter": {"agent": "echo"}})
    await peer.expect("session.jobs")
    begun.set()


@pytest.mark.real_tcp
async def test_a_resume_does_not_wait_behind_listings(tmp_path: Path, overtaken: list[int]) -> None:
    """Sessions full of requests for listings hold up neither a resume nor another's jobs."""
    store = SqliteStore(tmp_path / "arcp.db", synchronous="OFF")
    with trio.fail_after(60):
        async with Stage.open(store) as stage, trio.open_nursery() as nursery:
            stage.runtime.add(simple_agents)
            ended_jobs(store, "alice", 2_000)
            await store.flushed()
            bob = await stage.welcomed(token=BOB)
            job = await bob.submit("sleeper", idempotency_key="k")
            await bob.drop()
            begun = trio.Event()
            peers = [await stage.welcomed() for _ in range(SESSIONS)]
            for peer in peers:
                nursery.start_soon(ask_for_lists, peer, begun)
            await begun.wait()
            overtaken.clear()
            again = await stage.welcomed(token=BOB, resume=bob.resume_from())
            repeated = await again.submit("sleeper", idempotency_key="k")
            assert repeated["job_id"] == job["job_id"]
            # A read of alice's may come before each of bob's.
            assert overtaken
            assert max(overtaken) <= 1
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "filters",
    [
        {"statuses": frozenset({Status.ERROR})},
        {"statuses": frozenset({Status.SUCCESS, Status.ERROR})},
        {"agent": "echo"},
        {"agent": "nobody"},
        {"agent": "echo@1.0.0", "statuses": frozenset({Status.PENDING})},
    ],
    ids=["failed", "ended", "agent", "no such agent", "agent and status"],
)
async def test_a_filtered_page_costs_what_is_on_it(
    tmp_path: Path, filters: Mapping[str, Any]
) -> None:
    """Jobs that a filter leaves out are not looked at, however many there are."""
    async with running(SqliteStore(tmp_path / "arcp.db", synchronous="OFF")) as store:
        ended_jobs(store, "alice", 10_000)
        await store.flushed()
        whole = JobQuery(principal="alice", limit=100)
        unfiltered = await store._read(steps, whole)
        assert await store._read(steps, attrs.evolve(whole, **filters)) <= 2 * unfiltered


def steps(db: sqlite3.Connection, query: JobQuery) -> int:
    """Return how many steps SQLite takes for a page, in hundreds."""
    count = itertools.count()
    db.set_progress_handler(lambda: next(count) < 0, 100)
    _listing.jobs(db, query)
    db.set_progress_handler(None, 0)
    return next(count)
