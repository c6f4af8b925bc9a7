"""An agent whose result comes with pauses, for the vendor's client."""

from __future__ import annotations

import trio

from arcp_trio import Agents, JobContext

agents = Agents()


@agents.agent("teller")
async def teller(job: JobContext) -> None:
    """Write three words, one a second."""
    async with job.stream_result() as out:
        for number in range(3):
            await out.write(f"word {number} ")
            await trio.sleep(1)
