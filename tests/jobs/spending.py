"""Agents that spend a dollar a time, for each place where an agent runs."""

from __future__ import annotations

from contextlib import suppress

from arcp_trio import Agents, ArcpError, AsyncioContext, BlockingContext, JobContext, Json

agents = Agents()
MANY = 50


@agents.agent("trio")
@agents.agent("trio-process", process=True)
async def on_trio(job: JobContext) -> Json:
    """Spend in the way that the input names."""
    return await _spend(job)


@agents.agent("asyncio", loop="asyncio")
@agents.agent("asyncio-process", loop="asyncio", process=True)
async def under_asyncio(job: AsyncioContext) -> Json:
    """Spend in the way that the input names."""
    return await _spend(job)


async def _spend(job: JobContext | AsyncioContext) -> Json:
    done = 0

    async def work() -> int:
        await job.metric("cost.work", 1, unit="USD")
        return 1

    match job.input:
        case "steps":
            for _ in range(6):
                done += await job.step("work", work)
        case "metrics":
            for _ in range(MANY):
                await job.metric("cost.work", 1, unit="USD")
        case "emits":
            for _ in range(MANY):
                await job.emit("metric", {"name": "cost.work", "value": 1, "unit": "USD"})
        case _:
            for _ in range(MANY):
                with suppress(ArcpError):
                    await job.metric("cost.work", 1, unit="USD")
    return done


@agents.agent("thread")
@agents.agent("thread-process", process=True)
def in_a_thread(job: BlockingContext) -> Json:
    """Spend in the way that the input names."""
    done = 0

    def work() -> int:
        job.metric("cost.work", 1, unit="USD")
        return 1

    match job.input:
        case "steps":
            for _ in range(6):
                done += job.step("work", work)
        case "metrics":
            for _ in range(MANY):
                job.metric("cost.work", 1, unit="USD")
        case "emits":
            for _ in range(MANY):
                job.emit("metric", {"name": "cost.work", "value": 1, "unit": "USD"})
        case _:
            for _ in range(MANY):
                with suppress(ArcpError):
                    job.metric("cost.work", 1, unit="USD")
    return done
