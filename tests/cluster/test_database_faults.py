"""The database is slow, full, restarted, or forgets: nobody is declared dead, nothing is lost."""

from __future__ import annotations

import http.client
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import psycopg
import pytest
import trio

from tests.cluster.client import Client
from tests.cluster.nodes import Node
from tests.cluster.stage import Stage, staged
from tests.postgres import execute
from tests.postgres_server import VolumeMissingError, own_server

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

LINES: Final = 150
VOLUME_BYTES: Final = 192 * 1024 * 1024
FULL: Final = "the store cannot be used: the disk is full"


@asynccontextmanager
async def a_job_and_a_follower(stage: Stage) -> AsyncGenerator[tuple[Client, Client, str]]:
    """Have a job at one node and a follower at another; both see all of it after the block."""
    client = await stage.client(stage.cluster[0])
    other = await stage.client(stage.cluster[1])
    job = await client.submit("count", [LINES, 0.02], "count")
    await other.subscribe(job)
    await other.heard(job, 10)
    yield client, other, job
    await client.counted(job, LINES)
    await other.counted(job, LINES)
    assert client.lost_sessions == other.lost_sessions == 0
    assert all(node.running for node in stage.cluster.nodes)
    with psycopg.connect(stage.cluster.database) as db:
        assert not db.execute("SELECT FROM arcp.node WHERE state = 'gone'").fetchall()


async def test_the_database_fails_in_many_ways(tmp_path: Path) -> None:
    """Work waits while connections are cut, the disk is full, the server is down; it goes on."""
    with own_server() as server:
        server.start()
        async with (
            staged(server.url(), tmp_path, nodes=2, node_seconds=5) as stage,
            a_job_and_a_follower(stage),
        ):
            await cut_connections(server.url(), times=10)
            await fill_disk(server.url())
            server.stop(signal.SIGQUIT)
            await trio.sleep(0.5)
            server.start()


async def test_the_volume_of_the_database_is_full(tmp_path: Path) -> None:
    """Nodes say so and send clients away, jobs wait; with room again, everything goes on."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(own_server(volume_bytes=VOLUME_BYTES))
        except VolumeMissingError as reason:
            pytest.skip(f"no volume can be mounted: {reason}")
        server.start()
        async with (
            staged(server.url(), tmp_path, nodes=2, node_seconds=5) as stage,
            a_job_and_a_follower(stage),
        ):
            with filled(server.data):
                node = stage.cluster[0]
                while await ready(node) != (503, FULL):  # noqa: ASYNC110
                    await trio.sleep(0.05)
                assert "No space left on device" in node.log
            if server.ended:  # it ends if its own log finds no room
                server.start()


@pytest.mark.soak
async def test_the_database_stands_still(tmp_path: Path) -> None:
    """Nobody is declared dead by nodes that could not beat themselves."""
    with own_server() as server:
        server.start()
        async with (
            staged(server.url(), tmp_path, nodes=2, node_seconds=2) as stage,
            a_job_and_a_follower(stage),
        ):
            server.pause()
            await trio.sleep(6)
            server.go_on()


@pytest.mark.soak
async def test_the_database_is_far_away(database: str, tmp_path: Path) -> None:
    """With 200 ms to the database and back, everything takes longer, and works."""
    async with staged(database, tmp_path, nodes=2, node_seconds=10) as stage:
        for node in stage.cluster.nodes:
            node.line.delay = 0.1
        async with a_job_and_a_follower(stage):
            pass


async def cut_connections(database: str, times: int) -> None:
    """End all connections of all nodes, again and again, while they are in use."""
    for _ in range(times):
        await execute(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        await trio.sleep(0.1)


@contextmanager
def filled(folder: Path) -> Generator[None]:
    """Take all the room of a volume, for the block."""
    ballast = folder / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4_096))
        yield
    finally:
        ballast.unlink()


async def ready(node: Node) -> tuple[int, str]:
    """Return what a node says to a balancer that asks whether it is ready."""

    def ask() -> tuple[int, str]:
        line = http.client.HTTPConnection("127.0.0.1", node.port, timeout=30)
        with closing(line):
            line.request("GET", "/readyz")
            answer = line.getresponse()
            return answer.status, answer.read().decode().strip()

    return await trio.to_thread.run_sync(ask)


async def fill_disk(database: str) -> None:
    """Have the server say for a moment that its disk is full."""
    await execute(
        database,
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'no space left on device' USING ERRCODE = '53100'; END $$",
        "CREATE TRIGGER full_disk BEFORE INSERT ON arcp.journal"
        " FOR EACH STATEMENT EXECUTE FUNCTION full_disk()",
    )
    await trio.sleep(0.5)
    await execute(database, "DROP TRIGGER full_disk ON arcp.journal")
