"""The agents of the nodes."""

from __future__ import annotations

import trio

from arcp_trio import Agents, JobContext, Json

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
