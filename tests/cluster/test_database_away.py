"""A client that comes while the database is away is told so soon, and comes in when it is back."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psycopg
import pytest
import trio

from arcp_trio import InternalError, Limits
from arcp_trio.log_lines import fields_of
from arcp_trio.store import outage
from arcp_trio.store.postgres import reader
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.store.records import Recovered
from arcp_trio.store.writes import PutSession
from arcp_trio.testing.frames import Frame
from tests.cluster.side_by_side import NodeHere, clients_of, runtime_over
from tests.postgres_server import ROLE, PostgresServer, own_server
from tests.store.engines import session_row

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

PATIENT = Limits(handshake_seconds=60)
SOON = 20.0
"""Seconds; a second is promised, and without that promise it would be a minute."""


async def parked_session(node: NodeHere, resume: Frame | None = None) -> Frame:
    """Have a client come and go, and return what resumes its session.

    Nothing is left to be written of the session by then.
    """
    client = await node.welcomed(resume=resume)
    await client.drop()
    assert client.session_id is not None
    place = None
    while place is None or place.node is not None:  # noqa: ASYNC110 - no event tells
        await trio.sleep(0.01)
        place = await node.store.shared.place(client.session_id)
    return client.resume_from()


@asynccontextmanager
async def node_with_own_server() -> AsyncGenerator[tuple[PostgresServer, NodeHere]]:
    """Run a node on a server that nobody else uses."""
    with own_server() as server:
        server.start()
        await trio.to_thread.run_sync(make_schema, server.url(), None)
        runtime, store = runtime_over(server.url(), "n0", limits=PATIENT)
        async with runtime, clients_of(runtime, store) as node:
            yield server, node


async def expect_to_be_told(node: NodeHere, resume: Frame | None) -> None:
    """Ask for a session, and expect to be refused soon."""
    with trio.fail_after(SOON), pytest.raises(InternalError, match="store cannot be used"):
        await node.welcomed(resume=resume)


def last_cause(caplog: pytest.LogCaptureFixture) -> str:
    """Return what the log has said last of why the store is in trouble."""
    said = [r for r in caplog.records if r.getMessage().startswith("store in trouble")]
    return str(fields_of(said[-1])["error"]) if said else ""


@pytest.mark.logs_error("store in trouble")
async def test_a_client_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new session needs a write, and a resume begins with reads: both find it out."""
    monkeypatch.setattr(reader, "RETRY_SECONDS", PATIENT.handshake_seconds)
    with trio.fail_after(100):
        async with node_with_own_server() as (server, node):
            for resume in (await parked_session(node), None):
                server.stop()
                await expect_to_be_told(node, resume)
                server.start()
                await node.store.recovered()
                await parked_session(node, resume)


@pytest.mark.logs_error("store in trouble")
async def test_a_node_starts_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that starts waits for a database that goes away for longer than reads are tried."""
    monkeypatch.setattr(reader, "RETRY_SECONDS", 2)
    with trio.fail_after(100), own_server() as server:
        server.start()
        await trio.to_thread.run_sync(make_schema, server.url(), None)
        runtime, store = runtime_over(server.url(), "n0", limits=PATIENT)
        recover = store.recover

        async def recover_without_server() -> Recovered:
            monkeypatch.setattr(store, "recover", recover)
            server.stop()
            return await recover()

        monkeypatch.setattr(store, "recover", recover_without_server)
        async with runtime, clients_of(runtime, store) as node:
            await expect_to_be_told(node, None)
            await trio.sleep(2)
            server.start()
            while runtime.ready() is not None:  # noqa: ASYNC110 - no event tells
                await trio.sleep(0.05)
            await node.welcomed()


@pytest.mark.logs_error("store in trouble, .*the server cannot be reached")
@pytest.mark.logs_error("store in trouble, .*the password is wrong")
async def test_the_log_says_what_is_wrong_now(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that is away, and then refuses the password, is in the log for each of these."""
    monkeypatch.setattr(outage, "CAUSE_SECONDS", 0.5)
    with trio.fail_after(100), own_server() as server:
        server.start()
        server.execute("CREATE ROLE node LOGIN PASSWORD 'first'")
        await trio.to_thread.run_sync(make_schema, server.url(), "node")
        with server.data.joinpath("pg_hba.conf").open("w") as rules:
            rules.write(f"local all {ROLE} trust\nlocal all all scram-sha-256\n")
        runtime, store = runtime_over(server.url().replace(f"{ROLE}@", "node:first@"), "n0")
        async with runtime, clients_of(runtime, store) as node:
            server.execute("ALTER ROLE node PASSWORD 'second'")
            server.stop()
            await expect_to_be_told(node, None)
            server.start()
            while "password is wrong" not in last_cause(caplog):  # noqa: ASYNC110 - no event tells
                await trio.sleep(0.01)
            server.execute("ALTER ROLE node PASSWORD 'first'")
            await store.recovered()


async def test_a_client_is_told_of_a_server_that_stands_still() -> None:
    """It is told before the store gives the server up, whether or not it needs a write."""
    with trio.fail_after(100):
        async with node_with_own_server() as (server, node):
            for resume in (await parked_session(node), None):
                server.pause()
                await expect_to_be_told(node, resume)
                assert node.store.trouble is None
                server.go_on()
                await node.store.flushed()
                await parked_session(node, resume)


async def test_a_server_that_answers_something_does_not_stand_still() -> None:
    """A write that takes long tells nothing, as long as reads are answered."""
    with trio.fail_after(100):
        async with node_with_own_server() as (server, node):
            with psycopg.connect(server.url()) as db:
                db.execute("LOCK arcp.session IN SHARE MODE")  # until the end of the block
                group = node.store.put(PutSession(session_row()))
                await group.taken.wait()
                began = trio.current_time()
                assert await node.store.session("S") is None
                assert node.store.silent_seconds < trio.current_time() - began
                assert not group.stored.is_set()
            await group.committed()
            assert node.store.silent_seconds == 0
