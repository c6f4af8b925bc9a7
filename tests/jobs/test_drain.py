"""Draining: what may go on while a runtime shuts down, and what is refused."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InternalError, JobContext, Limits
from arcp_trio.testing import open_peers
from arcp_trio.wire.json import Json
from tests.jobs.leaving import GOING_AWAY, clients_of
from tests.stage import make_runtime


async def test_jobs_may_finish_while_the_runtime_drains(autojump_clock: MockClock) -> None:
    """A job that ends within the drain succeeds, and the drain ends with the last job."""
    runtime = make_runtime()

    @runtime.agent("worker")
    async def worker(job: JobContext) -> Json:
        await trio.sleep(job.input)
        await job.log("nearly done")
        return "done"

    async with clients_of(runtime) as clients, runtime:
        peer = await clients.connect()
        jobs = [await peer.submit("worker", seconds) for seconds in (3, 6)]
        listener = clients.listen(peer)
        begun = trio.current_time()
        await runtime.shutdown(drain=60)
        assert trio.current_time() - begun == pytest.approx(6, abs=0.1)
        await listener.closed.wait()
        results = {f["job_id"]: f["payload"]["result"] for f in listener.frames[1::2]}
        assert results == {job["job_id"]: "done" for job in jobs}
        assert listener.code == GOING_AWAY


async def test_whoever_drains_is_done_with_the_last_job(autojump_clock: MockClock) -> None:
    """Two concurrent shutdowns both return when the last job has ended."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:

        @runtime.agent("napper")
        async def napper(job: JobContext) -> None:
            await trio.sleep(job.input)

        peer = await peers.connect()
        await peer.hello()
        for seconds in (1, 2, 3):
            await peer.submit("napper", seconds)
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.shutdown, 60)
            nursery.start_soon(runtime.shutdown, 60)
        assert trio.current_time() - begun < 3 + Limits().close_seconds + 1


async def test_what_is_not_done_by_then_is_ended(autojump_clock: MockClock) -> None:
    """A job that outlasts the drain ends with a retryable INTERNAL_ERROR."""
    runtime = make_runtime()
    async with clients_of(runtime) as clients, runtime:
        peer = await clients.connect()
        await peer.submit("sleeper")
        listener = clients.listen(peer)
        begun = trio.current_time()
        await runtime.shutdown(drain=10)
        assert trio.current_time() - begun == pytest.approx(10, abs=0.1)
        await listener.closed.wait()
        assert listener.frames[0]["payload"]["code"] == "INTERNAL_ERROR"
        assert listener.frames[0]["payload"]["retryable"] is True


async def test_nothing_new_begins_while_the_runtime_closes(autojump_clock: MockClock) -> None:
    """Submits and sessions are refused as retryable; cancels are served, and jobs go on."""
    runtime = make_runtime()
    async with clients_of(runtime) as clients, runtime:
        peer, parked = await clients.connect(), await clients.connect()
        early = await clients.connect(hello=False)
        job = await peer.submit("sleeper")
        await parked.drop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.shutdown, 60)
            await trio.sleep(1)
            with pytest.raises(InternalError, match="shutting down") as refused:
                await peer.submit("echo")
            assert refused.value.retryable
            for newcomer in (early, await clients.connect(hello=False)):
                with pytest.raises(InternalError, match="shutting down"):
                    await newcomer.hello()
                listener = clients.listen(newcomer)
                await listener.closed.wait()
                assert listener.code == GOING_AWAY
            await peer.send("job.cancel", {"job_id": job["job_id"]})
            end = await peer.until_terminal(job["job_id"])
            assert end["payload"]["code"] == "CANCELLED"
            listener = clients.listen(peer)
        await listener.closed.wait()
        assert listener.code == GOING_AWAY
