"""A node that is gone reads and writes nothing more, by no method and on no connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import psycopg
import pytest
import trio

from arcp_trio import Fenced, PostgresStore
from arcp_trio.store.interface import Reads
from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.nodes import NodeRow, NodeState
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.store.shared import Shared
from arcp_trio.store.writes import AcceptJob, PutSession
from tests.store.engines import job_row, session_row

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

Call = Callable[[], Awaitable[object]]

OTHER = NodeRow(node=7, name="z", state=NodeState.UP, version="1", beats=0, since=0)

ASKS_NOTHING = {"moved", "asked", "time_calls"}
"""These ask the database nothing: the first two wait for wake-ups."""


CHANGES = {"beat", "adopt", "leave_jobs", "take_jobs", "drain", "leave", "take_when_unlocked"}
"""These would change rows."""


def reads(store: PostgresStore) -> Mapping[str, Call]:
    """Return a call of each method that reads, by name."""
    return {
        "recover": store.recover,
        "stored_bytes": store.stored_bytes,
        "session": lambda: store.session("S"),
        "session_of_token": lambda: store.session_of_token(b"token"),
        "owner": lambda: store.owner("J"),
        "job": lambda: store.job("J"),
        "jobs": lambda: store.jobs(JobQuery(principal="alice", limit=1)),
        "index_after": lambda: store.index_after("J", 0),
        "key": lambda: store.key("alice", "k", 0),
        "owed": lambda: store.owed({"J": 0}, 1, 1),
        "memos": lambda: store.memos("J"),
        "memo": lambda: store.memo("J", "k"),
        "said": lambda: store.said("J", 0),
        "covers": lambda: store.covers("S", 0),
        "replay": lambda: store.replay("S", 0, 1, 1).next(1, 1),
    }


def calls(shared: Shared) -> Mapping[str, Call]:
    """Return a call of each method of a node, by name."""
    return {
        "beat": lambda: shared.beat(0.1, lambda _: None, lambda: None),
        "adopt": lambda: shared.adopt(OTHER),
        "leave_jobs": lambda: shared.leave_jobs(["J"]),
        "take_jobs": lambda: shared.take_jobs(["a@1.0.0"], 1, 0),
        "nodes": shared.nodes,
        "drain": shared.drain,
        "leave": shared.leave,
        "open_commands": lambda: shared.open_commands(()),
        "answers": shared.answers,
        "submitters": lambda: shared.submitters("J"),
        "news": lambda: shared.news(["J"], {}, 1, 1),
        "cursor_elsewhere": lambda: shared.cursor_elsewhere(["J"], "S"),
        "place": lambda: shared.place("S"),
        "take_when_unlocked": lambda: shared.take_when_unlocked("S", 7, 0),
        "sessions_here": shared.sessions_here,
        "find": lambda: shared.find("S"),
        "is_connected": lambda: shared.is_connected(7),
        "claimant": lambda: shared.claimant("alice", "k"),
        "held_elsewhere": shared.held_elsewhere,
        "public_key": lambda: shared.public_key(7, "S"),
    }


def abstract(kind: type) -> set[str]:
    """Return the methods that a subclass has to have, without properties."""
    names: frozenset[str] = kind.__abstractmethods__  # type: ignore[attr-defined]
    return {name for name in names if not isinstance(getattr(kind, name), property)}


@pytest.mark.parametrize("cut", [True, False])
async def test_every_method_says_so(*, cut: bool, database: str) -> None:
    """No method of a node that is gone changes anything; whatever asks a new connection raises."""
    await trio.to_thread.run_sync(make_schema, database, None)
    store = PostgresStore(database, node="a")
    everything = {**reads(store), **calls(store.shared)}
    assert everything.keys() == (abstract(Reads) | abstract(Shared)) - ASKS_NOTHING
    raised = set[str]()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(see_the_writer_end, store)
            await store.put(PutSession(session_row())).committed()
            await store.put(AcceptJob(job_row(), None)).committed()
            before = await trio.to_thread.run_sync(partial(fence, database, cut=cut))
            for name, call in everything.items():
                try:
                    await call()
                except Fenced:
                    raised.add(name)
            store.put(AcceptJob(job_row("K"), None))
    assert raised == everything.keys() if cut else raised >= CHANGES
    assert await trio.to_thread.run_sync(rows, database) == before


async def see_the_writer_end(  # noqa: ASYNC128 - the store calls task_status.started()
    store: PostgresStore, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run the writer until it finds out."""
    with pytest.RaisesGroup(Fenced, allow_unwrapped=True, flatten_subgroups=True):
        await store.run(task_status=task_status)


def fence(database: str, *, cut: bool) -> Mapping[str, list[tuple[object, ...]]]:
    """Take the node for dead, as another one does, and return what is stored then."""
    with psycopg.connect(database) as db:
        db.execute("UPDATE arcp.node SET state = 'gone'")
        db.execute("DELETE FROM arcp.beat")
        if cut:
            db.execute(
                "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity"
                " WHERE application_name LIKE 'arcp/%' AND datname = current_database()"
            )
    return rows(database)


def rows(database: str) -> Mapping[str, list[tuple[object, ...]]]:
    """Return everything that is stored, by table."""
    with psycopg.connect(database) as db:
        tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'arcp'").fetchall()
        return {
            table: db.execute(f"SELECT * FROM arcp.{table} ORDER BY 1").fetchall()
            for (table,) in tables
        }
