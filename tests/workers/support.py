"""What the tests of worker processes share: runtimes with workers, and whole jobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from arcp_trio import Limits, Runtime, StaticTokens, Workers
from arcp_trio.testing import Peer, open_peer
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.json import Json
from tests.stage import simple_agents
from tests.workers import (
    agents_in_processes,
    delegating_agents,
    harmful_agents,
    waiting_agents,
)

GRACE = 0.5
PATIENT = Limits(cancel_grace_seconds=20)
"""For agents that are to end well when they are cancelled, however slow the machine is."""
COUNT = 2


@asynccontextmanager
async def open_runtime(
    count: int = COUNT, limits: Limits | None = None
) -> AsyncGenerator[Runtime, None]:
    """Open a runtime with worker processes, in real time."""
    with trio.fail_after(50):
        async with Runtime(
            auth=StaticTokens({TEST_TOKEN: "alice", "bob-token": "bob"}),
            limits=limits or Limits(cancel_grace_seconds=GRACE),
            workers=Workers(count=count, jobs_per_worker=3, environment={"GIVEN": "yes"}),
        ) as entered:
            entered.add(simple_agents)
            entered.add(agents_in_processes.agents)
            entered.add(waiting_agents.agents)
            entered.add(delegating_agents.agents)
            entered.add(harmful_agents.agents)
            yield entered


@asynccontextmanager
async def open_with_workers(count: int, limits: Limits | None = None) -> AsyncGenerator[Peer, None]:
    """Open a runtime with this number of workers, and a peer; no wait may last."""
    with trio.fail_after(30):
        async with open_runtime(count, limits) as runtime, open_peer(runtime) as peer:
            await peer.hello()
            yield peer


async def end_of(peer: Peer, job: Frame) -> Frame:
    """Return the payload of a job's terminal."""
    payload: Frame = (await peer.until_terminal(job["job_id"]))["payload"]
    return payload


async def run(peer: Peer, agent: str, input_: Json = None, **fields: Json) -> Frame:
    """Run a job, and return the payload of its terminal."""
    return await end_of(peer, await peer.submit(agent, input_, **fields))
