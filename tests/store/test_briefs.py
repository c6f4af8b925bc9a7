"""What is stored of a job for listings, also in a file that an earlier version wrote."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from arcp_trio import InternalError, Runtime, SqliteStore, StaticTokens
from arcp_trio.store.interface import Store
from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.records import Entry, Status
from arcp_trio.store.sqlite import _schema
from arcp_trio.store.writes import FinishJob, StartJob
from arcp_trio.testing import open_pair
from tests.store.engines import Feeder, anywhere, job_row, running
from tests.store.files import on

VERSION_1 = Path(__file__).with_name("version_1.db.gz")
"""A store of version 1: a job that spent money, one that failed, and one that was running."""


class _Then:
    """A clock that has stopped soon after the store of version 1 was written."""

    def now(self) -> float:
        """Return that time."""
        return 1795052880.0  # 2026-11-19, 01:48


async def test_a_job_is_read_as_it_was_started_and_ended(store: Store, feeder: Feeder) -> None:
    """Start, error, spending and last event are in the row, by id and in a listing."""
    feeder.job()
    store.put(StartJob("J", 5.0))
    await store.flushed()
    begun = anywhere(await store.job("J"))
    assert begun == replace(job_row(), status=Status.RUNNING, started_at=5.0)
    store.put(
        FinishJob(
            "J",
            Status.ERROR,
            9.0,
            Entry(0, 1, b"end", terminal=True),
            error=b'{"code":"TIMEOUT"}',
            spent=b'{"USD":"1"}',
            last_event="calls a",
        )
    )
    await store.flushed()
    ended = anywhere(await store.job("J"))
    assert ended == replace(
        begun,
        status=Status.ERROR,
        finished_at=9.0,
        length=1,
        error=b'{"code":"TIMEOUT"}',
        spent=b'{"USD":"1"}',
        last_event="calls a",
    )
    (listed,) = await store.jobs(JobQuery(principal="alice", limit=1))
    assert anywhere(listed) == ended


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    """A copy of the store of version 1."""
    path = tmp_path / "arcp.db"
    path.write_bytes(gzip.decompress(VERSION_1.read_bytes()))
    return path


async def test_a_file_of_version_1_is_brought_up_to_date(version_1: Path) -> None:
    """Its jobs are kept; what it did not store of them is not known."""
    async with running(on(version_1)) as store:
        rows = await store.jobs(JobQuery(principal="alice", limit=9))
        assert [(row.agent, row.status) for row in rows] == [
            ("sleeper@1.0.0", "running"),
            ("failing@1.0.0", "error"),
            ("shopper@1.0.0", "success"),
        ]
        for row in rows:
            assert (row.started_at, row.error, row.spent, row.last_event) == (None,) * 4
    with closing(sqlite3.connect(version_1)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(_schema.MIGRATIONS),)


async def test_a_runtime_goes_on_with_a_file_of_version_1(version_1: Path) -> None:
    """A runtime ends the job that was running, and lists it with its error."""
    store = SqliteStore(version_1, synchronous="OFF")
    runtime = Runtime(auth=StaticTokens({"test": "alice"}), store=store, clock=_Then())
    async with runtime, open_pair(runtime, token="test") as client:
        sleeper, failing, shopper = [info async for info in client.jobs()]
    assert (sleeper.status, sleeper.error_code) == ("error", InternalError.code)
    assert sleeper.error == "the runtime restarted while the job was running"
    assert sleeper.finished_at is not None
    assert (failing.principal, failing.error, failing.spent) == ("alice", None, None)
    assert shopper.budget is not None
    assert {each: str(amount) for each, amount in shopper.budget.items()} == {"USD": "2"}
