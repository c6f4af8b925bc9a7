"""Agents that stream words in steps and outside of them, in each place where an agent may run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from arcp_trio import Agents, AsyncioContext, BlockingContext, JobContext
from tests.durable import killing_agents

agents = Agents()
mortal = killing_agents  # importing it lets this process die at a commit

PARTS = 5
PAUSE = 0.02


def words(part: int) -> list[str]:
    """Return the words of one part."""
    return [f"{part}-{n} é" for n in range(8)]


TEXT = "begin " + "".join("".join(words(part)) + "| " for part in range(PARTS))


async def tell(job: Any, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Stream the text."""
    async with job.stream_result() as out:

        async def speak(part: int) -> None:
            for word in words(part):
                first, last = word.encode()[:-1], word.encode()[-1:]
                await out.write(first)
                await sleep(PAUSE)
                await out.write(last)

        await out.write("begin ")
        for part in range(PARTS):
            await job.step("speak", speak, part)
            await out.write("| ")
            await sleep(PAUSE)


@agents.agent("trio", durable=True)
async def on_trio(job: JobContext) -> None:
    """Stream the text on Trio."""
    await tell(job, trio.sleep)


@agents.agent("asyncio", durable=True, loop="asyncio")
async def under_asyncio(job: AsyncioContext) -> None:
    """Stream the text under asyncio."""
    await tell(job, asyncio.sleep)


@agents.agent("worker", durable=True, loop="asyncio", process=True)
async def in_a_worker(job: AsyncioContext) -> None:
    """Stream the text in a worker process."""
    await tell(job, asyncio.sleep)


@agents.agent("thread", durable=True)
def in_a_thread(job: BlockingContext) -> None:
    """Stream the text in a thread."""
    with job.stream_result() as out:

        def speak(part: int) -> None:
            for word in words(part):
                out.write(word)
                time.sleep(PAUSE)

        out.write("begin ")
        for part in range(PARTS):
            job.step("speak", speak, part)
            out.write("| ")
            time.sleep(PAUSE)
