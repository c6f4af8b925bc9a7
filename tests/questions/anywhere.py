"""Agents that ask, for each place where an agent runs."""

from __future__ import annotations

from arcp_trio import Agents, AsyncioContext, BlockingContext, JobContext, Json, Unanswered

agents = Agents()


@agents.agent("trio")
@agents.agent("trio-process", process=True)
async def on_trio(job: JobContext) -> Json:
    """Ask twice: once for an answer, and once for nothing."""
    first = await job.ask("Sure?", options=["yes", "no"], name="first")
    try:
        await job.ask("Still?", expires_in=0.2)
    except Unanswered as late:
        return [first, late.code]
    return first


@agents.agent("thread")
@agents.agent("thread-process", process=True)
def in_a_thread(job: BlockingContext) -> Json:
    """Ask twice: once for an answer, and once for nothing."""
    first = job.ask("Sure?", options=["yes", "no"], name="first")
    try:
        job.ask("Still?", expires_in=0.2)
    except Unanswered as late:
        return [first, late.code]
    return first


@agents.agent("asyncio", loop="asyncio")
@agents.agent("asyncio-process", loop="asyncio", process=True)
async def under_asyncio(job: AsyncioContext) -> Json:
    """Ask twice: once for an answer, and once for nothing."""
    first = await job.ask("Sure?", options=["yes", "no"], name="first")
    try:
        await job.ask("Still?", expires_in=0.2)
    except Unanswered as late:
        return [first, late.code]
    return first
