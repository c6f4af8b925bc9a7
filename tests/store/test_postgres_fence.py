"""A node that is fenced stores nothing more, on no connection, at no time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import psycopg
import pytest
import trio

from arcp_trio import Fenced, PostgresStore
from arcp_trio.store.interface import Reads
from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.nodes import NodeRow, NodeState
from arcp_trio.store.records import Mark
from arcp_trio.store.shared import Shared
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


def calls(store: PostgresStore) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return a call of each method of a store and of what it is as one of several."""
    shared = store.shared
    dead = NodeRow(node=0, name="dead", state=NodeState.UP, version="1", beats=0, since=0.0)
    found: dict[str, Callable[[], Awaitable[object]]] = {
        "recover": store.recover,
        "stored_bytes": store.stored_bytes,
        "session": partial(store.session, "S"),
        "session_of_token": partial(store.session_of_token, b"token"),
        "owner": partial(store.owner, "J"),
        "job": partial(store.job, "J"),
        "jobs": partial(store.jobs, JobQuery(principal="alice", limit=1)),
        "index_after": partial(store.index_after, "J", 1),
        "key": partial(store.key, "alice", "k", 0.0),
        "owed": partial(store.owed, {"J": 0}, 1, 1),
        "memos": partial(store.memos, "J"),
        "memo": partial(store.memo, "J", "step"),
        "said": partial(store.said, "J", 0),
        "covers": partial(store.covers, "S", 0),
        "replay": partial(store.replay("S", 0, 1, 1).next, 1, 1),
        "beat": partial(shared.beat, 0.05, lambda _: None, lambda: None),
        "adopt": partial(shared.adopt, dead),
        "nodes": shared.nodes,
        "leave_jobs": partial(shared.leave_jobs, ["J"]),
        "take_jobs": partial(shared.take_jobs, ["agent@1"], 1, 600.0),
        "drain": shared.drain,
        "leave": shared.leave,
        "open_commands": partial(shared.open_commands, ()),
        "answers": shared.answers,
        "submitters": partial(shared.submitters, "J"),
        "public_key": partial(shared.public_key, 1, "S"),
        "news": partial(shared.news, ["J"], {"J": 0}, 1, 1),
        "cursor_elsewhere": partial(shared.cursor_elsewhere, ["J"], "S"),
        "place": partial(shared.place, "S"),
        "take_when_unlocked": partial(shared.take_when_unlocked, "S", 0, 0),
        "sessions_here": shared.sessions_here,
        "find": partial(shared.find, "S"),
        "is_connected": partial(shared.is_connected, 7),
        "is_claimed": partial(shared.is_claimed, "alice", "k"),
        "held_elsewhere": shared.held_elsewhere,
    }
    # These have values, wait for a sign of other nodes, or have something counted.
    others = {"node", "name", "signing_key", "asked", "moved", "time_calls"}
    assert Reads.__abstractmethods__ | Shared.__abstractmethods__ == others | set(found)
    return found


async def raises_fenced(call: Callable[[], Awaitable[object]]) -> bool:
    """Make a call; return whether it says that the node is fenced."""
    try:
        await call()
    except Fenced:
        return True
    return False


async def test_every_method_of_a_fenced_node_says_so(url: str) -> None:
    """What another node has adopted raises `Fenced` at any call, reads included."""
    async with running(PostgresStore(url, synchronous=False)) as store:
        await stored(store, *BASE)
        async with running(PostgresStore(url, synchronous=False)) as other:
            (dead,) = [n for n in await other.shared.nodes() if n.node == store.shared.node]
            await other.shared.adopt(dead)
        before = rows(url)
        for name, call in calls(store).items():
            with trio.fail_after(SECONDS):
                assert await raises_fenced(call), name
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
