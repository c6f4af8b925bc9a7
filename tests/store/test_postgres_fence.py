"""A node that is fenced stores nothing more, on no connection, at no time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import pytest
import trio

from arcp_trio import Fenced, PostgresStore
from arcp_trio.store.records import Mark
from arcp_trio.store.writes import AppendLog, Write
from tests import defects
from tests.store.engines import running
from tests.store.samples import BASE, WRITES

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS: Final = 60.0
"""Everything here ends long before."""


async def stored(store: PostgresStore, *writes: Write) -> None:
    """Store writes, as one group."""
    groups = [store.put(write) for write in writes]
    await groups[-1].committed()


def fence(url: str) -> None:
    """Fence all nodes, as one that adopts does."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE arcp.node SET state = 'gone'")


def rows(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return what all tables have."""
    with psycopg.connect(url) as db:
        names = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'arcp'").fetchall()
        return {
            name: sorted(db.execute(f"SELECT * FROM arcp.{name}".encode()).fetchall(), key=repr)
            for (name,) in names
        }


# -- after the fence


@pytest.mark.parametrize("write", WRITES, ids=lambda write: type(write).__name__)
async def test_no_write_of_a_fenced_node_is_stored(url: str, write: Write) -> None:
    """A write of any kind ends the writer of a fenced node with `Fenced`, and changes no row."""
    with pytest.raises(Fenced, match="go on with what it had"):
        await store_behind_a_fence(url, write)


async def store_behind_a_fence(url: str, write: Write) -> None:
    """Have a node store something, fence it, and have it store another thing."""
    before: dict[str, list[tuple[Any, ...]]] = {}
    try:
        async with running(PostgresStore(url, synchronous=False)) as store:
            await stored(store, *BASE)
            fence(url)
            before = rows(url)
            await stored(store, write)
    finally:
        assert rows(url) == before


async def test_a_fenced_node_says_what_may_be_the_reason(url: str) -> None:
    """The error names silence and a second start under one name, which an operator can mend."""
    async with running(PostgresStore(url, synchronous=False)) as store:
        fence(url)
        with trio.fail_after(SECONDS), pytest.raises(Fenced) as raised:
            await store.shared.nodes()
    assert str(raised.value) == (
        f"node {store.shared.node} is fenced: it was taken for dead, or a later start has its"
        " name; other nodes go on with what it had"
    )


# -- around the fence


@contextmanager
def session_locked(url: str) -> Generator[None]:
    """Hold the lock of the session's row."""
    with psycopg.connect(url) as db:
        db.execute("SELECT FROM arcp.session FOR UPDATE")
        yield


def waiting(url: str) -> int:
    """Return how many connections wait for a lock."""
    with psycopg.connect(url) as db:
        row = db.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is true."""
    while not condition():  # noqa: ASYNC110 - the database tells nobody
        await trio.sleep(0.01)


def log_rows(url: str) -> int:
    """Return how many rows the logs have."""
    return len(rows(url)["log"])


async def log_at_and_after_the_fence(url: str) -> tuple[int, int]:
    """Fence a node in the middle of a group; return the log's rows then, and in the end.

    The group waits for a row that somebody has locked. The fencer waits for the group, or does not.
    """
    at_fence: list[int] = []

    def fence_and_look() -> None:
        fence(url)
        at_fence.append(log_rows(url))

    async with running(PostgresStore(url, synchronous=False)) as store:
        await stored(store, *BASE)
        async with trio.open_nursery() as nursery:
            with session_locked(url):
                group = store.put(AppendLog("S", 1, [Mark(0, 1, b"more")], 0, {}, [], []))
                await until(lambda: waiting(url) == 1)
                nursery.start_soon(trio.to_thread.run_sync, fence_and_look)
                await until(lambda: waiting(url) == 2 or at_fence != [])
            await group.committed()
    return at_fence[0], log_rows(url)


async def test_nothing_is_stored_from_the_fence_on(url: str) -> None:
    """A group that has begun before the fence is stored before it; nothing comes after it."""
    with trio.fail_after(SECONDS):
        at_fence, later = await log_at_and_after_the_fence(url)
    assert at_fence == later == 2


@pytest.mark.parametrize("defect", [defects.look_for_the_fence_before, defects.write_without_fence])
async def test_a_fence_that_does_not_hold_is_found(
    url: str, defect: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fence that is not in the group's own transaction lets something through."""
    defect(monkeypatch)
    with trio.fail_after(SECONDS):
        at_fence, later = await log_at_and_after_the_fence(url)
    assert at_fence < later
