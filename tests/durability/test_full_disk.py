"""A full or failing disk below the durable store of a runtime."""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InternalError, MemoryStore, SqliteStore
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Fields
from tests.durability.faults import passing_time
from tests.durability.story import FEATURES, Client, World, told, two_clients
from tests.metrics import scrape

LINES = 200

RECOVERY_SECONDS = 5


@contextmanager
def no_more_pages(store: SqliteStore) -> Generator[None]:
    """Let the file not grow: SQLite raises `SQLITE_FULL`."""
    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count = {pages}")
    try:
        yield
    finally:
        store._writer.execute("PRAGMA max_page_count = 1000000")


@contextmanager
def no_more_writing(_: SqliteStore) -> Generator[None]:
    """Make the operating system refuse writes: SQLite raises `SQLITE_IOERR`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.logs_error("store in trouble, .*(database or disk is full|disk I/O error)")
@pytest.mark.parametrize(
    ("breakdown", "told_why"),
    [
        (no_more_pages, "the store cannot be used at the moment: the disk is full"),
        (no_more_writing, "the store cannot be used at the moment"),
    ],
)
async def test_work_waits_for_the_disk_and_goes_on_by_itself(
    breakdown: Callable[[SqliteStore], AbstractContextManager[None]],
    told_why: str,
    tmp_path: Path,
    mock_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Jobs wait and new work is refused while the disk is full; then all goes on by itself.

    Clients are told that the disk is full, and jobs can be listed, in new sessions, too.
    """
    caplog.set_level(logging.WARNING)
    store = SqliteStore(tmp_path / "arcp.db", synchronous="OFF")
    world = World(cast("MemoryStore", store))  # World uses its interface only
    async with passing_time(mock_clock, store), world.runtime, two_clients(world) as (client, _):
        idle = world.connect()
        await idle.hello(features=(*FEATURES, "list_jobs"))
        job_id = await client.submit("teller", LINES)
        await client.event_of(job_id)
        with breakdown(store):
            await store.troubled()
            await trio.sleep(60)
            await stands_still(world, client, job_id)
            with pytest.raises(InternalError) as refused:
                await idle.submit("teller", 1)
            assert (refused.value.retryable, refused.value.message) == (True, told_why)
            assert [each["job_id"] for each in await listed(idle)] == [job_id]
            late = world.connect()
            if breakdown is no_more_pages:
                await late.hello(features=(*FEATURES, "list_jobs"))
                assert [each["job_id"] for each in await listed(late)] == [job_id]
            else:
                with pytest.raises(InternalError):
                    await late.hello()
        began = trio.current_time()
        await store.recovered()
        fresh = await idle.submit("teller", 1)
        assert trio.current_time() - began <= RECOVERY_SECONDS
        await idle.until_terminal(fresh["job_id"])
        if breakdown is no_more_pages:
            await late.until_terminal((await late.submit("teller", 1))["job_id"])
        assert (await client.end_of(job_id))["type"] == "job.result"
        assert client.told(job_id) == told(LINES)
        assert set(client.closings) == {1011}
    assert [r.levelname for r in caplog.records if r.name == "arcp_trio.store.queue"] == [
        "ERROR",
        "WARNING",
    ]


async def listed(peer: Peer) -> list[Fields]:
    """Return the jobs that a client may observe."""
    answer = await peer.answer("session.jobs", await peer.send("session.list_jobs", {}))
    jobs: list[Fields] = answer["jobs"]
    return jobs


async def stands_still(world: World, client: Client, job_id: str) -> None:
    """Check that for a minute the agent does not go on, and its client gets nothing."""
    emitted, seen = scrape(world.runtime)("events_total"), len(client.told(job_id))
    await trio.sleep(60)
    assert scrape(world.runtime)("events_total") == emitted
    assert len(client.told(job_id)) == seen
