"""Agents in worker processes that delegate to one another."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import trio
import trio.testing

from arcp_trio import Agents, ArcpError, BlockingContext, Child, JobContext
from arcp_trio.wire.json import Json

agents: Final = Agents()
LEASE: Final = {"agent.delegate": ["*"]}


@agents.agent("nested", process=True)
def nested(job: BlockingContext) -> Json:
    """Delegate to the first agent of the input, with the rest of it; return all process ids."""
    if not job.input:
        return [os.getpid()]
    agent, *rest = job.input
    child = job.delegate(agent, rest, lease=LEASE if rest else None)
    return [os.getpid(), *child.result()]


@agents.agent("between")
async def between(job: JobContext) -> Json:
    """Do the same on the runtime's loop."""
    agent, *rest = job.input
    child = await job.delegate(agent, rest, lease=LEASE if rest else None)
    return [os.getpid(), *await child.result()]


@agents.agent("several", process=True)
async def several(job: JobContext) -> Json:
    """Have a child for each agent and input of the input at once; return results, or codes."""
    ends: dict[int, Json] = {}

    async def wait(name: int, child: Child) -> None:
        try:
            ends[name] = await child.result()
        except ArcpError as error:
            ends[name] = error.code

    async with trio.open_nursery() as nursery:
        for number, (agent, input_, seconds) in enumerate(job.input):
            child = await job.delegate(agent, input_, max_runtime=seconds)
            nursery.start_soon(wait, number, child)
            await trio.testing.wait_all_tasks_blocked()  # so that they wait in order
    return [ends[each] for each in sorted(ends)]


@agents.agent("in-turn", process=True)
def in_turn(job: BlockingContext) -> Json:
    """Have one child after the other, as many as the input says; return their process ids."""
    return [job.delegate("nested", []).result()[0] for _ in range(job.input)]


@agents.agent("leaving-early", process=True)
async def leaving_early(job: JobContext) -> Json:
    """Wait for a child until it has begun, and return."""
    child = await job.delegate("lasting", job.input)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(child.result)
        while not Path(job.input).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    return "left"


@agents.agent("lasting", process=True)
async def lasting(job: JobContext) -> Json:
    """Leave a file with the process id, and stay."""
    Path(job.input).with_suffix(".new").write_text(str(os.getpid()))
    Path(job.input).with_suffix(".new").rename(job.input)
    await trio.sleep_forever()


@agents.agent("computing", process=True)
def computing(job: BlockingContext) -> Json:
    """Take some seconds; return when that began and ended, on a clock of all processes."""
    began = time.monotonic()
    time.sleep(job.input)
    return [began, time.monotonic()]
