"""Agents that wait for the vendor's client, which makes files in the folder that is their input."""

from __future__ import annotations

from pathlib import Path

import trio

from arcp_trio import Agents, JobContext, Json

agents = Agents()


async def _made(job: JobContext, name: str) -> None:
    while not Path(job.input, name).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await trio.sleep(0.01)


@agents.agent("teller")
async def teller(job: JobContext) -> None:
    """Write three words, each after the client has had the one before."""
    async with job.stream_result() as out:
        for number in range(3):
            await out.write(f"word {number} ")
            await _made(job, str(number))


@agents.agent("stroller")
async def stroller(job: JobContext) -> Json:
    """Take one step, wait, and take four more."""
    for step in range(1, 6):
        await job.progress(step, total=5, units="steps")
        await _made(job, "seen")
    return {"done": 5}
