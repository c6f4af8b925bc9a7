"""Agents whose code runs in threads. In real time: a virtual clock does not wait for threads."""

from __future__ import annotations

import trio

from arcp_trio import JobContext, Runtime
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
