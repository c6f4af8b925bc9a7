"""Agents whose code runs in threads. In real time: a virtual clock does not wait for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
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


class LeftBehind(Thread):
    """A thread of an agent that goes on after its agent has returned."""

    def __init__(self, job: BlockingContext | AsyncioContext) -> None:
        super().__init__(daemon=True)
        self.job = job
        self.told: list[str] = []
        """The calls that have raised `AgentCancelled`."""

    def run(self) -> None:
        """Wait for a child that does not end; then emit."""
        if isinstance(self.job, AsyncioContext):
            asyncio.run(self.call_async(self.job))
        else:
            self.call(self.job)

    def call(self, job: BlockingContext) -> None:
        """Make the calls of a plain function."""
        with self.telling("waiting"):
            job.delegate("sleeper").result()
        with self.telling("later"):
            job.log("nobody carries this")

    async def call_async(self, job: AsyncioContext) -> None:
        """Make the same calls under asyncio."""
        with self.telling("waiting"):
            child = await job.delegate("sleeper")
            await child.result()
        with self.telling("later"):
            await job.log("nobody carries this")

    @contextmanager
    def telling(self, call: str) -> Generator[None]:
        """Note that the block has raised `AgentCancelled`."""
        try:
            yield
        except AgentCancelled:
            self.told.append(call)


@pytest.mark.parametrize("agent", ["returns", "returns-async"])
async def test_threads_of_an_agent_that_has_returned(
    runtime: Runtime, peer: Peer, agent: str
) -> None:
    """Calls that another thread of the agent waits for, or makes later, raise `AgentCancelled`."""
    left: list[LeftBehind] = []

    def leave(job: BlockingContext | AsyncioContext) -> None:
        left.append(LeftBehind(job))
        left[0].start()

    @runtime.agent("returns")
    def returns(job: BlockingContext) -> None:
        leave(job)

    @runtime.agent("returns-async", loop="asyncio")
    async def returns_async(job: AsyncioContext) -> None:
        leave(job)

    job = await peer.submit(agent, lease_request={"agent.delegate": ["sleeper"]})
    await peer.until_terminal(job["job_id"])
    with trio.fail_after(5):
        while left[0].is_alive():  # noqa: ASYNC110 - the thread tells nobody
            await trio.sleep(0.01)
    assert left[0].told == ["waiting", "later"]
