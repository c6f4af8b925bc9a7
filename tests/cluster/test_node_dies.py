"""A node is killed, stopped, or cut off from the database: the others go on with what it had."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import psycopg
import pytest
import trio

from tests.cluster.client import Client
from tests.cluster.nodes import NODE_SECONDS, Node
from tests.cluster.stage import Stage, staged

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

FENCED: Final = 6
"""The exit code of a node that others have taken for dead."""


STEPS: Final = 12


async def at_work(stage: Stage, node: Node) -> tuple[Client, Client, str, str]:
    """Have a client at a node with a job and a durable one, and a client elsewhere that follows."""
    mine = await stage.client(node)
    other = await stage.client(stage.others(node)[0])
    job = await mine.submit("count", [100_000, 0.01], "count")
    durable = await mine.submit("steps", STEPS, "steps")
    await other.subscribe(job)
    await mine.heard(job, 20)
    await other.heard(job, 20)
    return mine, other, job, durable


async def goes_on(mine: Client, other: Client, job: str, durable: str) -> None:
    """Check that both see the job's one terminal, and that the durable job is finished."""
    ends = [await client.end(job) for client in (mine, other)]
    assert ends[0] == ends[1]
    assert (ends[0]["code"], ends[0]["retryable"]) == ("INTERNAL_ERROR", True)
    assert mine.said(job) == other.said(job)
    assert (await mine.end(durable))["result"] == sum(range(STEPS))
    assert mine.resumes == 1
    assert mine.lost_sessions == other.lost_sessions == 0


async def test_a_node_is_killed(database: str, tmp_path: Path) -> None:
    """Its session resumes elsewhere, its job has one end for all, its durable job is finished."""
    async with staged(database, tmp_path) as stage:
        node = stage.cluster[0]
        work = await at_work(stage, node)
        await node.kill()
        await goes_on(*work)
        logs = [other.log.splitlines() for other in stage.others(node)]
        taken = [line for log in logs for line in log if "took over from another node" in line]
        assert len(taken) == 1
        assert f"other={node.name}" in taken[0]


async def test_a_node_stands_still_for_too_long(database: str, tmp_path: Path) -> None:
    """A node that goes on after it was given up stores nothing more, and ends by itself."""
    async with staged(database, tmp_path) as stage:
        node = stage.cluster[0]
        work = await at_work(stage, node)
        node.signal(signal.SIGSTOP)
        node.serves = False
        await stage.cluster.balancer.cut(node.port)
        await goes_on(*work)
        before = committed(database, node)
        node.signal(signal.SIGCONT)
        assert await node.ended() == FENCED
        assert committed(database, node) == before


async def test_a_node_loses_the_database_and_keeps_its_clients(
    database: str, tmp_path: Path
) -> None:
    """A node behind a cut line tells its clients nothing that others do not know, and is fenced."""
    async with staged(database, tmp_path) as stage:
        node = stage.cluster[0]
        mine, other, job, durable = await at_work(stage, node)
        node.line.shut()
        await trio.sleep(NODE_SECONDS / 2)
        node.serves = False  # as its /readyz says by now
        await stage.cluster.balancer.cut(node.port)
        await goes_on(mine, other, job, durable)
        node.line.open()
        assert await node.ended() == FENCED


@pytest.mark.soak
async def test_a_pause_that_is_short_enough(database: str, tmp_path: Path) -> None:
    """A node that stood still for less than that goes on, with its jobs."""
    async with staged(database, tmp_path, nodes=2, node_seconds=10) as stage:
        node = stage.cluster[0]
        client = await stage.client(node)
        job = await client.submit("count", [100, 0.02], "count")
        await client.heard(job, 10)
        node.signal(signal.SIGSTOP)
        await trio.sleep(1)
        node.signal(signal.SIGCONT)
        await client.counted(job, 100)
        assert node.running


async def test_all_nodes_die_at_once(database: str, tmp_path: Path) -> None:
    """Nodes that start under the names of killed ones take over at once, and wait for nothing."""
    async with staged(database, tmp_path, nodes=2, node_seconds=60) as stage:
        node, second = stage.cluster.nodes
        work = await at_work(stage, node)
        async with trio.open_nursery() as dying:
            dying.start_soon(node.kill)
            dying.start_soon(second.kill)
        await node.start()
        await second.start()
        await goes_on(*work)


def committed(database: str, node: Node) -> list[tuple[object, ...]]:
    """Return how far all nodes of this name have got in what they stored."""
    with psycopg.connect(database) as db:
        return db.execute(
            "SELECT node, committed FROM arcp.node WHERE name = %s AND state = 'gone'"
            " ORDER BY node",
            (node.name,),
        ).fetchall()
