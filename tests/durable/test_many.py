"""A start with a thousand suspended jobs: clients are let in at once, and no job is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio

from arcp_trio import (
    Agents,
    BlockingContext,
    JobContext,
    Json,
    Limits,
    Runtime,
    SqliteStore,
    StaticTokens,
)
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
async def test_newer_jobs_do_not_take_the_threads(tmp_path: Path) -> None:
    """Jobs that go on get threads, although jobs submitted since the start have taken all."""
    agents = Agents()

    @agents.agent("in_a_thread", durable=True)
    def in_a_thread(job: BlockingContext) -> Json:
        job.log("begun")
        if job.run == 1:
            job.sleep(1_000)
        return job.run

    limits = Limits(agent_threads_per_principal=2, jobs_begun_per_second=2)
    for run in (1, 2):
        store = SqliteStore(tmp_path / "db")
        runtime = Runtime(auth=StaticTokens({"test": "alice"}), store=store, limits=limits)
        runtime.add(agents)
        async with runtime, open_pair(runtime, token="test") as client:
            if run == 2:
                for _ in range(2):
                    async for _ in (await client.submit("in_a_thread")).events():
                        break  # one may be refused, if another has gone on before
            for key in ("a", "b"):
                job = await client.submit("in_a_thread", idempotency_key=key)
                if run == 1:
                    await anext(aiter(job.events()))
                else:
                    assert await job.result() == 2


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
