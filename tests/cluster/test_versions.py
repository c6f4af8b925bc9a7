"""A rolling upgrade: nodes of the version before go on beside a schema that was migrated."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psycopg
import pytest
import trio

from arcp_trio.store.postgres import _checks, _schema
from arcp_trio.store.postgres.administering import migrate_schema, nodes
from arcp_trio.testing import WireRecorder
from arcp_trio.testing.frames import Frame
from tests.cluster.agents import agents
from tests.cluster.audit import audit
from tests.cluster.counting import SECONDS, counted, counting_nodes, read
from tests.cluster.side_by_side import NodeHere, clients_of, runtime_over

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

EVENTS = 60


def make_oldest_schema(database: str) -> None:
    """Make the schema of the first version, with the columns that this program cannot miss."""
    with pytest.MonkeyPatch.context() as patch, psycopg.connect(database) as db:
        patch.setattr(_schema, "MIGRATIONS", _schema.MIGRATIONS[:1])
        patch.setattr(_schema, "OLDEST_WRITERS", _schema.OLDEST_WRITERS[:1])
        _schema.migrate(db, "arcp")
        for statement in _schema.CLIENTS:
            db.execute(statement.encode())


def make_later_schema(database: str) -> None:
    """Migrate the schema to a version that this program does not know, and may write.

    Each table by itself: in one transaction, the nodes' reads of several tables could deadlock it.
    """
    with psycopg.connect(database, autocommit=True) as db:
        tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'arcp'").fetchall()
        for (table,) in tables:
            db.execute(f"ALTER TABLE arcp.{table} ADD COLUMN later int NOT NULL DEFAULT 7".encode())
        db.execute("UPDATE arcp.schema SET version = version + 1")


@asynccontextmanager
async def node_of(
    database: str, name: str, recorder: WireRecorder, *, version: int | None = None
) -> AsyncGenerator[NodeHere]:
    """Run a node whose program writes an older version of the schema, or the newest one."""
    runtime, store = runtime_over(database, name, agents)
    with pytest.MonkeyPatch.context() as patch:
        if version is not None:
            patch.setattr(_checks, "VERSION", version)
        async with runtime, clients_of(runtime, store, recorder) as node:
            patch.undo()  # only a start looks
            yield node


async def count_across(first: NodeHere, second: NodeHere) -> None:
    """Have a job at the first node be heard at both in turn, without a gap, and be listed."""
    peer = await first.welcomed()
    job = (await peer.submit("count", [EVENTS, 0.01]))["job_id"]
    seen: list[Frame] = []
    for n, node in enumerate((second, first, second), start=1):
        seen += await read(peer, job, EVENTS * n // 4 - len(counted(seen, job)))
        await peer.drop()
        peer = await node.welcomed(resume=peer.resume_from())
    seen += await read(peer, job)
    assert counted(seen, job) == list(range(EVENTS))
    listing = await peer.answer("session.jobs", await peer.send("session.list_jobs", {}))
    assert job in [each["job_id"] for each in listing["jobs"]]


async def test_an_old_node_goes_on_while_the_schema_is_migrated(database: str) -> None:
    """Its jobs and clients go on, between it and a new node, and one of its version may start."""
    await trio.to_thread.run_sync(make_oldest_schema, database)
    recorder = WireRecorder()
    with trio.fail_after(SECONDS):
        async with node_of(database, "old", recorder, version=1) as old:
            peer = await old.welcomed()
            job = (await peer.submit("count", [EVENTS, 0.01]))["job_id"]
            seen = await read(peer, job, 10)
            told = await trio.to_thread.run_sync(migrate_schema, database)
            assert told.endswith(f"migrated from version 1 to {_checks.VERSION}")
            seen += await read(peer, job)
            assert counted(seen, job) == list(range(EVENTS))
            async with node_of(database, "new", recorder) as new:
                await count_across(old, new)
                await count_across(new, old)
                async with node_of(database, "old too", recorder, version=1) as again:
                    await count_across(again, new)
        await trio.to_thread.run_sync(audit, database)


async def test_a_migration_waits_for_a_node_that_reads(database: str) -> None:
    """One that reads its row, and then the beats, is waited for: neither is in the other's way."""
    await trio.to_thread.run_sync(make_oldest_schema, database)
    with trio.fail_after(SECONDS), psycopg.connect(database) as node:
        node.execute("SELECT FROM arcp.node")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, migrate_schema, database)
            while not await trio.to_thread.run_sync(someone_waits, database):  # noqa: ASYNC110
                await trio.sleep(0.01)
            await trio.to_thread.run_sync(node.execute, "SELECT FROM arcp.beat")
            node.commit()
    with psycopg.connect(database) as db:
        assert db.execute("SELECT version FROM arcp.schema").fetchone() == (_checks.VERSION,)


def someone_waits(database: str) -> bool:
    """Return whether a transaction waits for a table that another one has locked."""
    with psycopg.connect(database) as db:
        found = db.execute(
            "SELECT FROM pg_locks JOIN pg_database ON database = pg_database.oid"
            " WHERE datname = current_database() AND NOT granted"
        )
        return bool(found.rowcount)


async def test_a_node_goes_on_beside_a_schema_of_a_later_version(database: str) -> None:
    """Columns that it does not know change nothing in what it writes and reads."""
    async with counting_nodes(database) as (first, second):
        await count_across(first, second)
        await trio.to_thread.run_sync(make_later_schema, database)
        await count_across(second, first)
        recorder = WireRecorder()
        async with (
            node_of(database, "third", recorder) as third,
            node_of(database, "fourth", recorder) as fourth,
        ):
            await count_across(third, fourth)
            for listed in nodes(database, gone=False):
                assert listed.beat_seconds is not None
