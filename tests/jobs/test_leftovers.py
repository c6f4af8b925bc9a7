"""Agents that leave files of their jobs are told when the jobs are gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from trio.testing import MockClock

from arcp_trio import JobContext, Limits, MemoryStore
from arcp_trio.runtime.job.leftovers import SWEEP_SECONDS
from tests.stage import Stage


class Leaving:
    """An agent that says which of its jobs are kept whenever it is asked to sweep."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.found: list[list[bool]] = []

    async def __call__(self, job: JobContext) -> None:
        """Note the job."""
        self.jobs.append(job.id)
        await job.log("noted")

    async def sweep(self, is_kept: Callable[[str], Awaitable[bool]], limits: Limits) -> None:
        """Note which jobs are kept."""
        del limits
        self.found.append([await is_kept(job_id) for job_id in self.jobs])


async def test_the_runtime_sweeps(autojump_clock: MockClock) -> None:
    """An agent that leaves files is told which of its jobs are past their retention."""
    leaving = Leaving()
    limits = Limits(finished_job_seconds=1.5 * SWEEP_SECONDS)
    async with Stage.open(MemoryStore(), limits=limits) as stage:
        stage.runtime.agent("leaving")(leaving)
        peer = await stage.connect()
        await peer.hello()
        job_id = (await peer.submit("leaving"))["job_id"]
        await peer.until_terminal(job_id)
        await trio.sleep(4 * SWEEP_SECONDS)
    assert [True] in leaving.found
    assert leaving.found[-1] == [False]
