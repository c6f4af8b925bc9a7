"""Agents in worker processes that wait for much at the same time, and give waits up."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, TypeAlias

import trio
import trio.testing

from arcp_trio import AgentCancelled, Agents, AsyncioContext, BlockingContext, JobContext
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.limits import MIB, Limits
from arcp_trio.runtime.workers.allowance import most_waits
from arcp_trio.runtime.workers.messages import WorkerFrame, packed, value_data
from arcp_trio.wire.json import Json
from tests.workers.in_a_worker import clean, to_the_runtime

_Wait: TypeAlias = Callable[[], Coroutine[object, object, Json]]

agents: Final = Agents()
MOST: Final = most_waits(Limits())
"""Waits that a worker's job has at the runtime at the same time."""
MANY: Final = MOST + 10


@agents.agent("impatient", process=True)
async def impatient(job: JobContext) -> Json:
    """Give up more waits than are carried out at a time, each at once, and then wait once more."""
    sleeper = await job.delegate("sleeper")
    for _ in range(3 * MOST):
        with trio.CancelScope() as scope:
            scope.cancel()
            await sleeper.result()
    echo = await job.delegate("echo", "heard")
    return await echo.result()


@agents.agent("crowd-on-trio", process=True)
async def crowd_on_trio(job: JobContext) -> Json:
    """Be a crowd on Trio's loop."""

    @asynccontextmanager
    async def often(wait: _Wait) -> AsyncGenerator[None]:
        async with trio.open_nursery() as nursery:
            for _ in range(MANY):
                nursery.start_soon(wait)
            yield
            nursery.cancel_scope.cancel()

    return await _crowd(job, often, trio.sleep)


@agents.agent("crowd-on-asyncio", loop="asyncio", process=True)
async def crowd_on_asyncio(job: AsyncioContext) -> Json:
    """Be a crowd under asyncio."""

    @asynccontextmanager
    async def often(wait: _Wait) -> AsyncGenerator[None]:
        waits = [asyncio.create_task(wait()) for _ in range(MANY)]
        yield
        for each in waits:
            each.cancel()

    return await _crowd(job, often, asyncio.sleep)


async def _crowd(
    job: JobContext | AsyncioContext,
    often: Callable[[_Wait], AbstractAsyncContextManager[None]],
    sleep: Callable[[float], Awaitable[None]],
) -> Json:
    """Wait often for one child; log meanwhile; after a while give up the waits and go on."""
    try:
        sleeper = await job.delegate("sleeper")
        async with often(sleeper.result):
            await sleep(0.1)
            await job.log("still here")
            await sleep(job.input["seconds"])
        echo = await job.delegate("echo", "heard")
        return await echo.result()
    finally:
        clean(job.input["clean"])


@agents.agent("crowd-of-threads", process=True)
def crowd_of_threads(job: BlockingContext) -> Json:
    """Wait in many threads for one child, and log meanwhile."""
    try:
        sleeper = job.delegate("sleeper")
        with ThreadPoolExecutor(MANY) as pool:
            for _ in range(MANY):
                pool.submit(sleeper.result)
            job.log("still here")
    finally:
        clean(job.input["clean"])
    raise AgentCancelled


@agents.agent("family", process=True)
async def family(job: JobContext) -> Json:
    """Have more children than the runtime is asked about at the same time, and hear of each."""
    found: list[Json] = []

    async def hear(number: int) -> None:
        async with few:
            child = await job.delegate("echo", number)
        found.append(await child.result())

    few = trio.CapacityLimiter(10)
    async with trio.open_nursery() as nursery:
        for number in range(MANY):
            nursery.start_soon(hear, number)
    return sorted(found)


@agents.agent("large-family", process=True)
async def large_family(job: JobContext) -> Json:
    """Wait for more children than usual that last, and then for one in a worker."""
    async with trio.open_nursery() as nursery:
        for _ in range(MANY):
            nursery.start_soon((await job.delegate("sleeper")).result)
        child = await job.delegate("about")
        await trio.testing.wait_all_tasks_blocked()
        found = await child.result()
        nursery.cancel_scope.cancel()
    return found["pid"] != os.getpid()


@agents.agent("unheard", process=True)
async def unheard(job: JobContext) -> Json:
    """Log until that takes long, give it up, log more than fits, and return."""
    with trio.CancelScope() as scope:
        while True:
            scope.deadline = trio.current_time() + 1
            await job.log("x" * 10_000)
    for number in range(MANY):
        with trio.move_on_after(0):
            await job.log(str(number))


@agents.agent("far-reaching", process=True)
async def far_reaching(job: JobContext) -> Json:
    """Ask for the note of a job that has the longest id, while a child is awaited."""
    sleeper = await job.delegate("sleeper")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleeper.result)
        await trio.sleep(0.1)
        await job.kept("x" * (4 * MIB - len('[""]')))
        nursery.cancel_scope.cancel()
    return "answered"


@agents.agent("last-words", process=True)
async def last_words(job: JobContext) -> Json:
    """Log without waiting for it, and return at once."""
    for number in range(20):
        with trio.CancelScope() as scope:
            scope.cancel()
            await job.log(str(number))


@agents.agent("too-large", process=True)
def too_large(job: BlockingContext) -> Json:
    """Make calls that are too large to be sent; return how many are still waited for."""
    for _ in range(50):
        with suppress(ValueError):
            job.log("x" * Limits().frame_bytes_in)
    gc.collect()
    return sum(isinstance(each, Future) for each in gc.get_objects())


@agents.agent("hasty-on-trio", process=True)
async def hasty_on_trio(job: JobContext) -> Json:
    """Make far more calls of each kind than the allowance lets through, all at once."""
    await job.keep("note")
    async with trio.open_nursery() as nursery:
        for _ in range(20 * MOST):
            nursery.start_soon(job.kept, job.id)
            nursery.start_soon(job.log, "heard")
    return "heard"


@agents.agent("hasty-on-asyncio", loop="asyncio", process=True)
async def hasty_on_asyncio(job: AsyncioContext) -> Json:
    """Make far more calls of each kind than the allowance lets through, all at once."""
    await job.keep("note")
    kept = [job.kept(job.id) for _ in range(20 * MOST)]
    await asyncio.gather(*kept, *(job.log("heard") for _ in kept))
    return "heard"


@agents.agent("unawaited-on-trio", process=True)
async def unawaited_on_trio(job: JobContext) -> Json:
    """Log more than the allowance lets through, and give each up at once."""
    for number in range(300):
        with trio.CancelScope() as scope:
            scope.cancel()
            await job.log(str(number))


@agents.agent("unawaited-on-asyncio", loop="asyncio", process=True)
async def unawaited_on_asyncio(job: AsyncioContext) -> Json:
    """Log more than the allowance lets through, in tasks that nobody waits for."""
    logs = [asyncio.ensure_future(job.log(str(number))) for number in range(300)]
    await asyncio.sleep(0)
    return len(logs)


@agents.agent("greedy", process=True)
def greedy(job: BlockingContext) -> Json:
    """Write more calls to the runtime than the allowance of a job, beside the library."""
    sleeper = job.delegate("sleeper")
    descriptor = to_the_runtime()
    for number in range(3 * MOST):
        data = value_data([sleeper.id])
        call = WorkerFrame("call", 1_000_000 + number, Desk.child_result.__name__, data)
        os.write(descriptor, packed(call))
    return sleeper.result()


@agents.agent("half", process=True)
async def half(job: JobContext) -> Json:
    """Give up a wait while half of its large answer is there, and then go on."""
    sys.setswitchinterval(10)  # the thread that reads has its turns only when this one waits
    child = await job.delegate("large", 300_000)

    async def wait() -> None:
        with scope:
            await child.result()

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(0.1)
        await job.log("computing")
        _hold_up()
        scope.cancel()
    echo = await job.delegate("echo", "heard")
    return await echo.result()


def _hold_up() -> None:
    """Compute for a second or so, and let no other thread run."""
    sum(range(40_000_000))


@agents.agent("large")
async def large(job: JobContext) -> Json:
    """Return a large result, after a moment."""
    await trio.sleep(0.3)
    return hashlib.shake_128(b"large").hexdigest(job.input)
