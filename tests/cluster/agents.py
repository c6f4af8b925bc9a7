"""The agents of the nodes."""

from __future__ import annotations

import time

import trio

from arcp_trio import Agents, BlockingContext, JobContext, Json

agents = Agents()


@agents.agent("count")
async def count(job: JobContext) -> Json:
    """Log 0, 1, 2 …; the input has the total and the pause after each."""
    assert isinstance(job.input, list)
    total, pause = job.input
    assert isinstance(total, int)
    for number in range(total):
        await job.log(str(number))
        await trio.sleep(pause)
    return total


@agents.agent("steps", durable=True)
async def steps(job: JobContext) -> Json:
    """Take as many steps as the input says, each a tenth of a second, and return their sum."""
    assert isinstance(job.input, int)

    async def step(number: int) -> int:
        await trio.sleep(0.1)
        return number

    return sum([await job.step(f"step {n}", step, n) for n in range(job.input)])


@agents.agent("hold")
async def hold(job: JobContext) -> Json:
    """Hold the loop for as many seconds as the input says, after a moment."""
    assert isinstance(job.input, int)
    await trio.sleep(1)
    time.sleep(job.input)  # noqa: ASYNC251 - an agent with this mistake
    return None


@agents.agent("stone")
def stone(job: BlockingContext) -> Json:
    """Sleep for as many seconds as the input says, whatever the job is told."""
    assert isinstance(job.input, int)
    time.sleep(job.input)
    return None


@agents.agent("asks", durable=True)
async def asks(job: JobContext) -> Json:
    """Ask people whether to go on, and return what they say."""
    answer: Json = await job.ask("go on?")
    return answer
