"""The agents of the servers that are killed, or whose disk is full."""

from __future__ import annotations

import trio

from arcp_trio import Agents, JobContext, Json

agents = Agents()


@agents.agent("count")
async def count(job: JobContext) -> Json:
    """Log 0, 1, 2 … in bursts; the input has the total, the burst's size and the pause."""
    assert isinstance(job.input, list)
    total, burst, pause = job.input
    assert isinstance(total, int)
    assert isinstance(burst, int)
    assert isinstance(pause, float)
    for number in range(total):
        await job.log(str(number))
        if number % burst == burst - 1:
            await trio.sleep(pause)
    return total


@agents.agent("gated")
async def gated(job: JobContext) -> None:
    """Take steps: the first, and the others once there is a file `go on` in the working folder."""
    assert isinstance(job.input, int)
    for step in range(1, job.input + 1):
        await job.progress(step, total=job.input)
        await trio.sleep(0.05)
        while not await trio.Path("go on").exists():  # noqa: ASYNC110 - no event tells
            await trio.sleep(0.05)
