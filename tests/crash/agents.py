"""The agent of the server that is killed."""

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
