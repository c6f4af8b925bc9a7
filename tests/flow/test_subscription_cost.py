"""What an event costs a session that observes many jobs."""

from __future__ import annotations

import time

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, MemoryStore
from tests.durability.story import World
from tests.durability.test_leaks import read_until

EVENTS = 2_000


@pytest.mark.parametrize("at_once", [1, 100])
async def test_jobs_that_say_nothing_cost_nothing(at_once: int, autojump_clock: MockClock) -> None:
    """A hundred times as many silent jobs observed do not make another's events dearer.

    Give or take a lot, whether events come one by one or many at a time.
    """
    few, many = [await cost_beside(silent, at_once) for silent in (10, 1_000)]
    assert many < 3 * few


async def cost_beside(silent: int, at_once: int) -> float:
    """The processor's time for the events of one job, to somebody who observes more."""
    world = World(
        MemoryStore(), jobs_per_principal=2_000, jobs=2_000, subscriptions_per_session=2_000
    )
    go = trio.Event()

    @world.runtime.agent("chatty")
    async def chatty(job: JobContext) -> None:
        await go.wait()
        for _ in range(EVENTS // at_once):
            for _ in range(at_once):
                await job.log("")
            await trio.sleep(0.001)

    async with world.runtime:
        owner, observer = world.connect(), world.connect()
        for peer in (owner, observer):
            await peer.hello()
        for agent in [*["waiter"] * silent, "chatty"]:
            job = await owner.submit(agent)
            subscribe = {"job_id": job["job_id"], "history": False}
            await observer.answer("job.subscribed", await observer.send("job.subscribe", subscribe))
        began: float = time.thread_time()
        go.set()
        await read_until(observer, "job.result")
        return time.thread_time() - began
