"""A node that takes over from a dead one is itself killed or stopped, at each of its messages."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import Final

import attrs
import psycopg
import pytest
import trio

from arcp_trio.nurseries import tasks_beside
from tests.cluster.client import Client
from tests.cluster.hindering import Fault, killed, with_each_fault
from tests.cluster.line import Flow, Trap
from tests.cluster.nodes import NODE_SECONDS, Node
from tests.cluster.stage import Stage, staged

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

MARK: Final = b"pg_terminate_backend"
"""The first thing that a node sends when it takes over."""
JOBS: Final = 3


async def hinder(stage: Stage, at: int, fault: Fault) -> bool:
    """Kill a node; do something to the node that takes over. Return whether it came so far."""
    async with tasks_beside() as nursery:  # its clients are not those of the next time
        return await _hinder(attrs.evolve(stage, nursery=nursery), at, fault)


async def _hinder(stage: Stage, at: int, fault: Fault) -> bool:
    node, *others = stage.cluster.nodes
    client = await stage.client(others[0])
    first = await stage.client(node)
    jobs = [await first.submit("count", [100_000, 0.05], f"{at} {n}") for n in range(JOBS)]
    for job in jobs:
        await client.subscribe(job)
    hit: list[Node] = []
    for other in others:

        async def do(flow: Flow, other: Node = other) -> None:
            if not hit:  # both may be at that message: one of them has to go on
                hit.append(other)
                await fault(other, flow)

        other.line.trap = Trap(MARK, at, do, steps=True)
    await node.kill()
    for job in jobs:
        await same_end(job, first, client)
    for other in others:
        other.line.trap = None
    return bool(hit)


async def same_end(job: str, *clients: Client) -> None:
    """Check that a job has ended as lost, and in the same way for all who follow it."""
    ends = [await client.end(job) for client in clients]
    assert all(end == ends[0] for end in ends)
    assert (ends[0]["code"], ends[0]["retryable"]) == ("INTERNAL_ERROR", True)


async def restore(stage: Stage) -> None:
    """Have all nodes run again, those that were stopped as new ones."""
    for node in stage.cluster.nodes:
        if node.running and not node.serves:
            await given_up(stage, node)
            node.signal(signal.SIGCONT)
            assert await node.ended() == 6
        # One that took over, and whose connection does not answer, may have locks for a while.
        while not node.running:
            await node.tries_to_start()


async def given_up(stage: Stage, node: Node) -> None:
    """Wait until the others count a node as dead: one that goes on earlier has lost nothing."""
    while counts_as_alive(stage.cluster.database, node):  # noqa: ASYNC110
        await trio.sleep(0.1)


def counts_as_alive(database: str, node: Node) -> bool:
    """Return whether the node has a row that is not gone."""
    with psycopg.connect(database) as db:
        found = db.execute(
            "SELECT FROM arcp.node WHERE name = %s AND state <> 'gone'", (node.name,)
        ).fetchone()
    return found is not None


async def test_a_take_over_that_is_cut_short(database: str, tmp_path: Path) -> None:
    """If the node that takes over is killed, too, a third one goes on; each job has one end."""
    async with staged(database, tmp_path) as stage:
        assert await hinder(stage, 4, killed)


@pytest.mark.soak
@pytest.mark.timeout(0)
async def test_a_take_over_that_is_cut_short_at_each_message(tmp_path: Path) -> None:
    """The same at each message of a take-over, up to the ends of the jobs, for each fault."""

    async def at_each(stage: Stage, fault: Fault) -> int:
        for at in itertools.count(1):
            with trio.fail_after(100):
                if not await hinder(stage, at, fault):
                    break
                await restore(stage)
        return at

    done = await with_each_fault(tmp_path, at_each, 2 * NODE_SECONDS)
    assert min(done.values()) > 10, done
