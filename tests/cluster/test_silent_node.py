"""A node whose beats do not arrive is adopted while it runs, and ends when it learns of that."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import trio

from arcp_trio import Agents, Fenced, JobContext, Limits, PostgresStore, Runtime
from arcp_trio.store.postgres import _schema
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.testing import WireRecorder
from tests.cluster.side_by_side import NodeHere, clients_of, runtime_over
from tests.credentials.runtimes import LEASE
from tests.credentials.upstream import Upstream
from tests.metrics import scrape

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

QUICK = Limits(node_seconds=1, cancel_grace_seconds=1)
GONE = "node is gone, others go on|store in trouble"
"""The second may come before the first, as the node's connections are cut."""


napping = Agents()


@napping.agent("napper", durable=True)
async def napper(job: JobContext) -> None:
    """Say something, then sleep."""
    await job.log("begun")
    await job.sleep(600)


def silence(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the node of a store give no signs of life, as if that line alone were cut."""

    async def never(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(store.shared, "beat", never)


async def run_for_ever(runtime: Runtime, entered: trio.Event) -> None:
    """Run a node that nothing ends but the news that it is gone."""
    async with runtime:
        entered.set()
        await trio.sleep_forever()


@asynccontextmanager
async def until_fenced(
    runtime: Runtime, store: PostgresStore, recorder: WireRecorder
) -> AsyncGenerator[tuple[NodeHere, trio.Event]]:
    """Run a node; provide it, and an event that is set once it has learned that it is gone."""
    entered, over = trio.Event(), trio.Event()

    async def see_its_end() -> None:
        with pytest.raises(Fenced):
            await run_for_ever(runtime, entered)
        over.set()

    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(see_its_end)
            await entered.wait()
            async with clients_of(runtime, store, recorder) as node:
                yield node, over


@pytest.mark.logs_error(GONE)
async def test_its_job_ends_and_its_credential_is_revoked(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adopter ends the job for all who watch it, and revokes what the job could spend."""
    await trio.to_thread.run_sync(make_schema, database, None)
    upstream, recorder = Upstream(), WireRecorder()
    silent, its_store = runtime_over(database, "n0", limits=QUICK, provisioner=upstream)
    other, store = runtime_over(database, "n1", limits=QUICK, provisioner=upstream)
    silence(its_store, monkeypatch)
    async with until_fenced(silent, its_store, recorder) as (node, over):
        client = await node.welcomed()
        job = await client.submit("sleeper", None, lease_request=LEASE)
        assert len(upstream.keys) == 1
        async with other, clients_of(other, store, recorder) as adopter:
            watcher = await adopter.welcomed()
            await watcher.send("job.subscribe", {"job_id": job["job_id"]})
            end = await watcher.until_terminal(job["job_id"])
            assert end["payload"]["message"] == (
                "the job's node was lost while the job was running"
            )
            assert end["payload"]["retryable"] is True
            while upstream.revoked.keys() != upstream.keys.keys():  # noqa: ASYNC110 - no event tells
                await trio.sleep(0.01)
            assert scrape(other)("adoptions_total") == 1
            await over.wait()


@pytest.mark.logs_error(GONE)
async def test_its_durable_job_goes_on(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are told that the job goes on at another node: nothing was restarted there."""
    await trio.to_thread.run_sync(make_schema, database, None)
    recorder = WireRecorder()
    silent, its_store = runtime_over(database, "n0", napping, limits=QUICK)
    other, store = runtime_over(database, "n1", napping, limits=QUICK)
    silence(its_store, monkeypatch)
    async with until_fenced(silent, its_store, recorder) as (node, over):
        client = await node.welcomed()
        job_id = (await client.submit("napper"))["job_id"]
        await client.expect("job.event", job_id=job_id)
        async with other, clients_of(other, store, recorder) as adopter:
            watcher = await adopter.welcomed()
            await watcher.send("job.subscribe", {"job_id": job_id, "history": True})
            while (event := (await watcher.expect("job.event"))["payload"])["kind"] == "log":
                pass
            message = "the job goes on at another node"
            assert event["body"] == {"phase": "resumed", "message": message, "run": 2}
            await over.wait()


def execute(url: str, *statements: str) -> None:
    """Execute statements as the owner."""
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            db.execute(statement.encode())


@pytest.mark.logs_error("node is gone, others go on")
async def test_it_says_why_it_gives_no_signs_of_life(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What keeps a node from beating is in the log, and is the reason for which it ends."""
    await trio.to_thread.run_sync(make_schema, database, None)
    role = f"node_{uuid.uuid4().hex}"
    execute(database, f"CREATE ROLE {role} LOGIN")
    with psycopg.connect(database, autocommit=True) as db:
        _schema.grant(db, "arcp", role)
    parts = urlsplit(database)
    its_url = urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))
    silent, its_store = runtime_over(its_url, "n0", limits=QUICK)
    other, _ = runtime_over(database, "n1", limits=QUICK)
    try:
        async with until_fenced(silent, its_store, WireRecorder()) as (_, over), other:
            execute(
                database,
                f"ALTER ROLE {role} CONNECTION LIMIT 0",
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                f" WHERE usename = '{role}' AND query LIKE '%beats%'",
            )
            while "node is dead, and adopted" not in caplog.messages:  # noqa: ASYNC110
                await trio.sleep(0.05)
            its_store.doubt()
            await over.wait()
    finally:
        execute(database, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    logged = [record for record in caplog.records if "error" in record.__dict__]
    why = {record.getMessage(): str(record.__dict__["error"]) for record in logged}
    assert "no connection left" in why["no sign of life given, others may take this node for dead"]
    assert "no sign of life: the server has no connection left" in why["node is gone, others go on"]
