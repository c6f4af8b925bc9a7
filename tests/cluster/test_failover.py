"""The primary server is lost, and a streaming replica takes its place."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.stage import Stage, staged
from tests.postgres_server import PostgresServer, own_server

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

LINES: Final = 150
FENCED: Final = 6
"""The exit code of a node whose writes were forgotten."""


@contextmanager
def primary_and_standby() -> Generator[tuple[PostgresServer, PostgresServer]]:
    """Run two servers, the second of which receives what the first one stores."""
    with own_server() as primary:
        primary.start()
        with own_server(copy_of=primary) as standby:
            standby.start()
            yield primary, standby


def fail_over(stage: Stage, primary: PostgresServer, standby: PostgresServer) -> None:
    """Lose the primary server, and have the nodes find the standby in its place."""
    primary.stop(signal.SIGQUIT)
    for node in stage.cluster.nodes:
        node.line.database = standby.url()
    stage.cluster.database = standby.url()
    standby.execute("SELECT pg_promote()")


async def test_a_synchronous_standby_takes_over(tmp_path: Path) -> None:
    """Nothing is lost: sessions and jobs go on at the new primary server."""
    with primary_and_standby() as (primary, standby):
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        async with staged(primary.url(), tmp_path, nodes=2) as stage:
            client = await stage.client(stage.cluster[0])
            job = await client.submit("count", [LINES, 0.02], "count")
            await client.heard(job, 20)
            fail_over(stage, primary, standby)
            await client.counted(job, LINES)
            assert client.lost_sessions == 0
            assert all(node.running for node in stage.cluster.nodes)


async def test_an_asynchronous_standby_has_forgotten_the_last_moments(tmp_path: Path) -> None:
    """The node that had promised more ends, its session is refused, and its job has one end."""
    with primary_and_standby() as (primary, standby):
        async with staged(primary.url(), tmp_path, nodes=2) as stage:
            node = stage.cluster[0]
            client = await stage.client(node)
            job = await client.submit("count", [100_000, 0.01], "count")
            await client.heard(job, 20)
            standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
            standby.execute("SELECT pg_reload_conf()")
            # What comes now is on the primary server only.
            await client.heard(job, client.said(job) + 100)
            fail_over(stage, primary, standby)
            assert await node.ended() == FENCED
            await client.until("a refused resume", lambda: client.lost_sessions)
            assert await client.submit("count", [100_000, 0.01], "count") == job
            assert (await client.end(job))["retryable"]
