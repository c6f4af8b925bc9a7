"""Agents that do nothing, one for each place where an agent can run."""

from __future__ import annotations

from typing import Final

from arcp_trio import Agents, AsyncioContext, BlockingContext, JobContext

agents: Final = Agents()


@agents.agent("loop")
async def in_the_loop(_job: JobContext) -> None:
    """Return at once."""


@agents.agent("thread")
def in_a_thread(_job: BlockingContext) -> None:
    """Return at once."""


@agents.agent("asyncio", loop="asyncio")
async def under_asyncio(_job: AsyncioContext) -> None:
    """Return at once."""


agents.agent("process-plain", process=True)(in_a_thread)
agents.agent("process-trio", process=True)(in_the_loop)
agents.agent("process-asyncio", process=True, loop="asyncio")(under_asyncio)
