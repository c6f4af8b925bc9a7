"""A start with a thousand suspended jobs: clients are let in at once, and no job is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio

from arcp_trio import Agents, JobContext, Json, Limits, Runtime, SqliteStore, StaticTokens
from arcp_trio.testing import open_pair

JOBS = 1_000
MOST_SECONDS = 10.0
"""Ten times what it is to take, as the machine may be slow."""

agents = Agents()


@agents.agent("sleeper", durable=True)
async def sleeper(job: JobContext) -> Json:
    """Do a few steps, and sleep until the day is over."""
    for _ in range(3):
        await job.step("step", trio.lowlevel.checkpoint)
    await job.sleep(80_000)
    return None


def runtime_on(path: Path) -> Runtime:
    """Return a runtime with the agent over the store in a file."""
    limits = Limits(jobs=JOBS, jobs_per_principal=JOBS)
    store = SqliteStore(path)
    runtime = Runtime(auth=StaticTokens({"test": "alice"}), store=store, limits=limits)
    runtime.add(agents)
    return runtime


@pytest.mark.real_tcp
async def test_a_thousand_jobs_do_not_hold_up_a_start(tmp_path: Path) -> None:
    """They are listed as running at once, and begun one after the other."""
    path = tmp_path / "arcp.db"
    with trio.fail_after(100):
        async with runtime_on(path) as runtime, open_pair(runtime, token="test") as client:
            for _ in range(JOBS):
                await client.submit("sleeper")
        began = time.monotonic()
        async with runtime_on(path) as runtime:
            while runtime.ready() is not None:  # noqa: ASYNC110 - it is what a probe does
                await trio.sleep(0.01)
            assert time.monotonic() - began < MOST_SECONDS
            async with open_pair(runtime, token="test") as client:
                listed = [job.status async for job in client.jobs()]
                assert listed == ["running"] * JOBS
