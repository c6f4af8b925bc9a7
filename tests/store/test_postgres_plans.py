"""How PostgreSQL carries statements out: by indexes, however few rows there were at first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import trio

from arcp_trio import PostgresStore
from arcp_trio.store.postgres import _connections
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.store.records import Range
from arcp_trio.store.shared_writes import Follow
from tests.store.engines import Feeder, running

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

ROWS: Final = 5_000
GROW: Final = (
    """INSERT INTO session (session_id, principal, features, dialect, top, floor, rows, acked,
        log_bytes, node) SELECT n, 'bob', '', '', 0, 0, 0, false, 0, 0
        FROM generate_series(1, %s) AS n""",
    """INSERT INTO job (job_id, agent, principal, session_id, trace_id, accepted, created_at,
        status, length, node) SELECT n, 'a@1', 'bob', n, '', '', 0, 'running', 0, 0
        FROM generate_series(1, %s) AS n""",
    """INSERT INTO journal SELECT jid, 0, 0, 0, '' FROM job WHERE principal = 'bob' LIMIT %s""",
)
GROWN: Final = frozenset({"session", "job", "journal"})
WASTE: Final = "job_expired"
"""The index of jobs that are to be deleted: all of what it has is looked at."""


class Traffic:
    """The writes and reads of a job that another node follows."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._feeder = Feeder(store)
        self._events = 0

    async def begin(self) -> None:
        """Have a session with a job."""
        await self._feeder.session().committed()
        await self._feeder.job().committed()
        await self._feeder.watch().committed()
        await self._store.put(Follow("J")).committed()

    async def event(self) -> None:
        """Have the job emit, and the follower read it."""
        self._events += 1
        self._feeder.emit()
        numbers = [Range(self._events, "J", self._events - 1, 1)]
        log = self._feeder.log(items=numbers, top=self._events, cursors={"J": self._events})
        await log.committed()
        news = await self._store.shared.news(["J"], {"J": self._events - 1}, 10, 1_000)
        assert len(news.owed) == 1


def reused(db: Database) -> int:
    """Return how often a connection has looked for a log by a statement that it had prepared."""
    row = db.execute(
        "SELECT coalesce(max(generic_plans), 0) FROM pg_prepared_statements"
        " WHERE statement LIKE 'SELECT sid, floor FROM session%'",
        prepare=False,
    ).fetchone()
    assert row is not None
    return int(row[0])


def grow(db: Database) -> None:
    """Add many rows to tables that have few."""
    for statement in GROW:
        db.execute(statement, (ROWS,), prepare=False)


def plans(db: Database) -> dict[str, Mapping[str, Any]]:
    """Return how each statement that a connection has prepared is carried out."""
    known = db.execute(
        "SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements"
        " WHERE generic_plans > 0 AND statement ~* '^\\s*(select|with|insert|update|delete)'",
        prepare=False,
    ).fetchall()
    db.execute("SET plan_cache_mode = force_generic_plan", prepare=False)
    found: dict[str, Mapping[str, Any]] = {}
    for name, statement, count in known:
        values = f"({', '.join(['NULL'] * count)})" if count else ""
        explain = f"EXPLAIN (FORMAT JSON) EXECUTE {name}{values}".encode()
        explained = db.execute(explain, prepare=False).fetchone()
        assert explained is not None
        found[statement] = explained[0][0]["Plan"]
    return found


def searches(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tables that have grown, and of which a plan reads all rows."""
    scanned = plan.get("Relation Name") if "Scan" in plan["Node Type"] else None
    by_index = any("Cond" in word for word in plan) or plan.get("Index Name") == WASTE
    if scanned in GROWN and not by_index:
        yield f"{plan['Node Type']} of {scanned}"
    for part in plan.get("Plans", ()):
        yield from searches(part)


async def test_no_table_is_searched_for_an_event(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """A plan that was made for a few rows is not kept for many: it would read all of them."""
    monkeypatch.setattr(_connections, "PLAN_SECONDS", 0)
    await trio.to_thread.run_sync(make_schema, database, None)
    store = PostgresStore(database)
    with trio.fail_after(60):
        async with running(store):
            traffic = Traffic(store)
            await traffic.begin()
            for _ in range(10):  # the server keeps a plan that was as good a few times
                await traffic.event()
            await store._writer.run(lambda db: db.execute("ANALYZE"))
            await traffic.event()
            await store._writer.run(grow)
            await traffic.event()
            for thread in (store._writer, *store._readers):
                for statement, plan in (await thread.run(plans)).items():
                    found = list(searches(plan))
                    assert not found, f"{statement}\n{json.dumps(plan, indent=1)}"


async def test_statements_stay_prepared(database: str) -> None:
    """A read of several statements leaves them prepared for the next one."""
    await trio.to_thread.run_sync(make_schema, database, None)
    store = PostgresStore(database)
    with trio.fail_after(60):
        async with running(store):
            traffic = Traffic(store)
            await traffic.begin()
            await traffic.event()
            for _ in range(8):
                assert await store.covers("S", 0)
            assert max([await thread.run(reused) for thread in store._readers]) >= 3
