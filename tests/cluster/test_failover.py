"""The primary server is lost, and a streaming replica takes its place."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, LiteralString

import psycopg
import pytest
import trio

from arcp_trio.nurseries import tasks_beside
from tests.cluster.client import Client
from tests.cluster.line import DatabaseLine
from tests.cluster.nodes import Node
from tests.cluster.stage import Stage, staged
from tests.postgres import execute
from tests.postgres_server import PostgresServer, own_server

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

LINES: Final = 150
FENCED: Final = 6
"""The exit code of a node whose writes were forgotten."""

_RESTS: Final = """
    SELECT NOT EXISTS (SELECT FROM arcp.session WHERE session.node = node.node)
        AND NOT EXISTS (SELECT FROM arcp.follow WHERE follow.node = node.node)
    FROM arcp.node WHERE name = %s AND state = 'up'"""


@asynccontextmanager
async def primary_and_standby() -> AsyncGenerator[
    tuple[PostgresServer, PostgresServer, DatabaseLine]
]:
    """Run two servers, the second of which receives what the first one stores, over a line."""
    with own_server() as primary:
        primary.start()
        with own_server(copy_of=primary) as standby:
            async with tasks_beside() as nursery:
                line = DatabaseLine(primary.url())
                await nursery.start(line.run)
                standby.start(primary_conninfo=line.url)
                yield primary, standby, line


async def fail_over(stage: Stage, primary: PostgresServer, standby: PostgresServer) -> None:
    """Lose the primary server, and have the nodes find the standby in its place."""
    primary.stop(signal.SIGQUIT)
    for node in stage.cluster.nodes:
        node.line.database = standby.url()
    stage.cluster.database = standby.url()
    await execute(standby.url(), "SELECT pg_promote()")


def answer(database: str, query: LiteralString, *values: object) -> Any:
    """Return the one value that a query has for an answer."""
    with psycopg.connect(database) as db:
        row = db.execute(query, values).fetchone()
    assert row is not None
    return row[0]


async def test_a_synchronous_standby_takes_over(tmp_path: Path) -> None:
    """Nothing is lost: sessions and jobs go on at the new primary server."""
    async with primary_and_standby() as (primary, standby, _):
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        async with staged(primary.url(), tmp_path, nodes=2, node_seconds=5) as stage:
            client = await stage.client(stage.cluster[0])
            job = await client.submit("count", [LINES, 0.02], "count")
            await client.heard(job, 20)
            await fail_over(stage, primary, standby)
            await client.counted(job, LINES)
            assert client.lost_sessions == 0
            assert all(node.running for node in stage.cluster.nodes)


# -- a standby that is behind


async def rests(stage: Stage, node: Node) -> None:
    """Wait until a node has neither sessions nor jobs to follow, and so writes nothing more."""
    while not answer(stage.cluster.database, _RESTS, node.name):  # noqa: ASYNC110
        await trio.sleep(0.05)


async def caught_up(primary: PostgresServer, standby: PostgresServer) -> None:
    """Wait until the standby has what is stored by now."""
    stored = answer(primary.url(), "SELECT pg_current_wal_lsn()::text")
    has_it: LiteralString = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
    while not answer(standby.url(), has_it, stored):  # noqa: ASYNC110
        await trio.sleep(0.05)


def told(client: Client) -> tuple[str, int]:
    """Return a client's session, and the highest number that it was told."""
    return client.session_id, client.recorder.highest(client.session_id)


async def refused(client: Client) -> None:
    """Wait until a client's resume is refused."""
    await client.until("a refused resume", lambda: client.lost_sessions)


async def test_an_asynchronous_standby_has_forgotten_the_last_moments(tmp_path: Path) -> None:
    """Who was told more is refused, others go on; no number is used again; the job has one end."""
    async with (
        primary_and_standby() as (primary, standby, line),
        staged(primary.url(), tmp_path) as stage,
    ):
        home, elsewhere, third = stage.cluster.nodes
        submitter, follower = await stage.client(home), await stage.client(elsewhere)
        absent = await stage.client(third)
        job = await submitter.submit("count", [100_000, 0.01], "count")
        for client in (follower, absent):
            await client.subscribe(job)
        await absent.heard(job, 20)
        with stage.cluster.balancer.only([]):
            await stage.cluster.balancer.cut(third.port)
            await rests(stage, third)
            await caught_up(primary, standby)
            line.shut()
            # What comes now is on the primary server only.
            for client in (submitter, follower):
                await client.heard(job, client.said(job) + 100)
            knew_more = [told(submitter), told(follower)]
            await fail_over(stage, primary, standby)
        assert await home.ended() == await elsewhere.ended() == FENCED
        for client in (submitter, follower):
            await refused(client)
        assert await submitter.submit("count", [100_000, 0.01], "count") == job
        await follower.subscribe(job)
        ends = [await client.end(job) for client in (submitter, follower, absent)]
        assert all(end["retryable"] for end in ends)
        assert ends[0] == ends[1] == ends[2]
        assert absent.lost_sessions == 0
        for session_id, highest in knew_more:
            top = "SELECT top FROM arcp.session WHERE session_id = %s"
            assert answer(standby.url(), top, session_id) < highest
