"""Sleeps of jobs: they end by the wall clock, and never are endless."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Agents, JobContext, Json
from arcp_trio.testing import open_pair
from arcp_trio.testing.peer import TEST_TOKEN
from tests.durable.stage import Life, result
from tests.jobs.doer import SteppedClock
from tests.stage import make_runtime

BOTH = pytest.mark.parametrize("durable", [True, False], ids=["durable", "plain"])


@BOTH
async def test_a_machine_that_sleeps(autojump_clock: MockClock, *, durable: bool) -> None:
    """A sleep is over by the wall clock, which goes on while Trio's clock stands still."""
    agents, clock = Agents(), SteppedClock()

    @agents.agent("agent", durable=durable)
    async def agent(job: JobContext) -> Json:
        began = trio.current_time()
        await job.sleep(1_000)
        return round(trio.current_time() - began)

    async with (
        make_runtime(agents, clock=clock) as runtime,
        open_pair(runtime, token=TEST_TOKEN) as client,
    ):
        job = await client.submit("agent")
        await trio.sleep(100)
        clock.step = 850
        assert 150 <= await job.result() <= 210
        job = await client.submit("agent")
        await trio.sleep(100)
        clock.step = 0
        assert await job.result() == 1_000


@BOTH
async def test_times_that_never_come(autojump_clock: MockClock, *, durable: bool) -> None:
    """A time that is not a finite number is refused, and the job goes on."""
    agents = Agents()

    @agents.agent("agent", durable=durable)
    async def agent(job: JobContext) -> Json:
        for seconds in (-1.0, math.nan, math.inf):
            with pytest.raises(ValueError, match="0 or more"):
                await job.sleep(seconds)
        for time in (math.nan, math.inf, -math.inf):
            with pytest.raises(ValueError, match=r"time\.time"):
                await job.sleep_until(time)
        return "went on"

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        assert result(await life.peer.until_terminal(job_id)) == "went on"
