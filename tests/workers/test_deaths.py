"""A durable job outlives its worker: its agent is called again in another one. In real time."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from arcp_trio import Client, JobFailed, JobHandle, Json, Limits, connect
from tests.durable.comparing import in_short
from tests.durable.process import TOKEN, Server, server_in

pytestmark = pytest.mark.real_tcp

AGENTS = ("--agents", "tests.workers.dying_agents", "--workers", "2")


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[tuple[Server, Client]]:
    """Serve the dying agents, and connect to them."""
    with trio.fail_after(40):
        async with server_in(folder, *AGENTS) as server:
            await server.start()
            async with connect(server.url, token=TOKEN) as client:
                yield server, client


async def told(job: JobHandle) -> list[str]:
    """Return what a job has told, in short, until its end."""
    return [in_short(event.kind, event.body) async for event in job.events()]


def done(folder: Path) -> list[str]:
    """Return what agents have noted."""
    return (folder / "done").read_text().splitlines()


async def test_a_job_goes_on_in_another_worker(tmp_path: Path) -> None:
    """Finished steps are not called again, what was told is told once, and the result is whole."""
    async with serving(tmp_path) as (server, client):
        job = await client.submit("dying", str(tmp_path))
        events = await told(job)
        assert [each for each in events if not each.startswith("result_chunk")] == [
            *("begin", "resumed 2", "resumed 3")
        ]
        assert await job.result() == "first, second"
    assert done(tmp_path) == ["first", "second", "second", "second"]
    assert "worker lost" in server.log


async def test_a_job_that_kills_each_worker_ends(tmp_path: Path) -> None:
    """Without progress it is called as often as after restarts; the end names the limit."""
    async with serving(tmp_path) as (_, client):
        job = await client.submit("doomed", str(tmp_path))
        with pytest.raises(JobFailed) as caught:
            await job.result()
    most = Limits().runs_without_progress
    assert caught.value.details == {"limit": "runs_without_progress", "max": most}
    assert done(tmp_path) == [f"run {n}" for n in range(1, most + 1)]


async def test_a_job_that_is_not_durable_fails(tmp_path: Path) -> None:
    """It is not called again, and the error is retryable."""
    async with serving(tmp_path) as (_, client):
        job = await client.submit("mortal", str(tmp_path))
        with pytest.raises(JobFailed, match="process ended") as caught:
            await job.result()
    assert (caught.value.code, caught.value.retryable) == ("INTERNAL_ERROR", True)
    assert done(tmp_path) == ["run 1"]


async def ready_to_answer(client: Client, count: int) -> list[Json]:
    """Wait until this many questions are open, and return their ids."""
    while True:
        asked = [q.question_id async for info in client.jobs() for q in info.waiting]
        if len(asked) == count:
            return sorted(asked)
        await trio.sleep(0.05)


@pytest.mark.parametrize("which", [0, 1], ids=["a worker", "the zygote"])
async def test_questions_and_children_outlive_a_process(which: int, tmp_path: Path) -> None:
    """The same questions can be answered, and a parent finds its child again."""
    lease = {"agent.delegate": ["*"], "tool.call": ["human.ask"]}
    async with serving(tmp_path) as (server, client), trio.open_nursery() as nursery:
        job = await client.submit("asking", lease=lease)
        async for event in job.events():
            if event.kind == "log":
                break
        asked = await ready_to_answer(client, 2)
        os.kill(int(event.body["message"].split()[which]), signal.SIGKILL)
        async for later in job.events():
            if later.body.get("phase") == "resumed":
                assert later.body["message"] == "the agent's process ended"
                break
        assert await ready_to_answer(client, 2) == asked
        async for info in client.jobs():
            for question in info.waiting:
                nursery.start_soon(question.answer, "yes")
        assert await job.result() == ["yes", "yes", 2]
        assert server.log.count("worker lost") == 1 + which
