"""What the server that is killed has to do."""

from __future__ import annotations

import trio

from arcp_trio import Agents, JobContext, Json

agents = Agents()


@agents.agent("count")
async def count(job: JobContext) -> Json:
    """Say 0, 1, 2 … in bursts: how many in all, in one burst, and how long between two."""
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
