"""A node that leaves: it ends in order, while another one is up."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import psycopg
import trio

from arcp_trio import Agents, JobContext, Json, Limits
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.testing import Peer, WireRecorder
from arcp_trio.transport import TransportClosed
from tests.cluster.side_by_side import NodeHere, clients_of, runtime_over
from tests.metrics import scrape

QUICK: Final = Limits(cancel_grace_seconds=1, node_seconds=5)

SECONDS: Final = 60
STEPS: Final = 40

agents: Final = Agents()


@agents.agent("steps", durable=True)
async def steps(job: JobContext) -> Json:
    """Take as many steps as the input says, and return the sum of their numbers."""
    total = 0
    for number in range(job.input):
        total += await job.step("add", partial(add, number))
    return total


async def add(number: int) -> int:
    """Take a moment, and return the number."""
    await trio.sleep(0.05)
    return number


async def closed(client: Peer) -> int | None:
    """Read until the connection is closed, and return the code."""
    try:
        while True:
            await client.receive()
    except TransportClosed as closed:
        return closed.code


async def where(database: str, job_id: str) -> str | None:
    """Return the name of the node that has a job, or had it last."""

    def read() -> str | None:
        with psycopg.connect(database) as db:
            found = db.execute(
                "SELECT name FROM arcp.job LEFT JOIN arcp.node USING (node) WHERE job_id = %s",
                (job_id,),
            ).fetchone()
        assert found is not None
        name: str | None = found[0]
        return name

    return await trio.to_thread.run_sync(read)


async def has_stepped(node: NodeHere, job_id: str) -> None:
    """Wait until a durable job has taken a step."""
    while not await node.store.memos(job_id):  # noqa: ASYNC110 - in the database
        await trio.sleep(0.01)


async def other_known(node: NodeHere) -> None:
    """Wait until a node has seen another one, so that it can leave anything to it."""
    while scrape(node.runtime)("nodes", state="up") < 2:  # noqa: ASYNC110 - a beat tells nobody
        await trio.sleep(0.05)


@asynccontextmanager
async def waiting_job(database: str, limits: Limits = QUICK) -> AsyncGenerator[tuple[Peer, str]]:
    """Have a durable job wait for a node that has its agent, as the one that had it has left.

    Provide a client at the other node, which goes on for the time of the block, and the job's id.
    """
    await trio.to_thread.run_sync(make_schema, database, None)
    recorder = WireRecorder()
    first, a = runtime_over(database, "a", agents, limits=limits)
    second, b = runtime_over(database, "b", limits=limits)
    with trio.fail_after(SECONDS):
        async with second, clients_of(second, b, recorder) as other:
            async with first, clients_of(first, a, recorder) as leaver:
                await other_known(leaver)
                client, job_id = await _leave(leaver, other)
            yield client, job_id


async def _leave(leaver: NodeHere, other: NodeHere) -> tuple[Peer, str]:
    """Have a node leave in the middle of a job; return its client, who is at the other one then."""
    client = await leaver.welcomed()
    job_id = (await client.submit("steps", STEPS))["job_id"]
    await has_stepped(leaver, job_id)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leaver.runtime.shutdown)
        assert await closed(client) == 1012
    return await other.welcomed(resume=client.resume_from()), job_id


async def goes_on_at(name: str, database: str, client: Peer, job_id: str) -> None:
    """Check that a job that no node has goes on at one with its agent, and ends there."""
    assert await where(database, job_id) is None
    runtime, _ = runtime_over(database, name, agents, limits=QUICK)
    async with runtime:
        end = await client.until_terminal(job_id)
        assert end["payload"]["result"] == sum(range(STEPS))
        assert await where(database, job_id) == name
