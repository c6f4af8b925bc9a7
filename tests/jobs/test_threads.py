"""Agents whose code runs in threads. In real time: a virtual clock does not wait for threads."""

from __future__ import annotations

import asyncio
from threading import Thread

import pytest
import trio

from arcp_trio import AgentCancelled, AsyncioContext, BlockingContext, JobContext, Runtime
from arcp_trio.testing import Peer
from arcp_trio.wire.json import Json


async def test_an_agent_may_work_in_threads(runtime: Runtime, peer: Peer) -> None:
    """A thread emits through `trio.from_thread`, in the order of the job's calls."""

    @runtime.agent("threaded")
    async def threaded(job: JobContext) -> Json:
        def work() -> str:
            for number in range(3):
                trio.from_thread.run(job.log, f"from the thread {number}")
            return "done"

        await job.log("before")
        result = await trio.to_thread.run_sync(work)
        await job.log("behind")
        return result

    job = await peer.submit("threaded")
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["result"] == "done"
    messages = [f["payload"]["body"]["message"] for f in peer.recorder.events(job["job_id"])]
    assert messages == ["before", *(f"from the thread {n}" for n in range(3)), "behind"]


@pytest.mark.parametrize("agent", ["returns", "returns-async"])
async def test_a_thread_of_an_agent_that_has_returned_is_told(
    runtime: Runtime, peer: Peer, agent: str
) -> None:
    """Calls that another thread of the agent waits for, or makes later, raise `AgentCancelled`."""
    left: list[Thread] = []
    told: list[str] = []

    def wait(job: BlockingContext) -> None:
        try:
            job.delegate("sleeper").result()
        except AgentCancelled:
            told.append("waiting")
        try:
            job.log("nobody carries this")
        except AgentCancelled:
            told.append("later")

    async def wait_async(job: AsyncioContext) -> None:
        try:
            child = await job.delegate("sleeper")
            await child.result()
        except AgentCancelled:
            told.append("waiting")
        try:
            await job.log("nobody carries this")
        except AgentCancelled:
            told.append("later")

    def leave(thread: Thread) -> None:
        left.append(thread)
        thread.start()

    @runtime.agent("returns")
    def returns(job: BlockingContext) -> Json:
        leave(Thread(target=wait, args=(job,), daemon=True))
        return None

    @runtime.agent("returns-async", loop="asyncio")
    async def returns_async(job: AsyncioContext) -> Json:
        leave(Thread(target=asyncio.run, args=(wait_async(job),), daemon=True))
        return None

    job = await peer.submit(agent, lease_request={"agent.delegate": ["sleeper"]})
    await peer.until_terminal(job["job_id"])
    with trio.fail_after(5):
        while left[0].is_alive():  # noqa: ASYNC110 - the thread tells nobody
            await trio.sleep(0.01)
    assert told == ["waiting", "later"]
