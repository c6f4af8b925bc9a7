"""Agents beside the loop: plain functions in threads, coroutines under asyncio. In real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from threading import Event

import pytest
import trio

from arcp_trio import (
    AgentCancelled,
    Agents,
    AsyncioContext,
    BlockingContext,
    JobContext,
    Limits,
    PermissionDenied,
    Runtime,
)
from arcp_trio.testing import Peer, open_peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.jobs import outside
from tests.metrics import scrape
from tests.stage import make_runtime, simple_agents

GRACE = 0.3
does_not_stop = pytest.mark.parametrize("grace", [GRACE])
"""Of a test whose agent does not stop: it is given up soon."""


@pytest.fixture
def grace() -> float:
    """How long an agent may take to stop: longer than a busy machine stands still."""
    return Limits().cancel_grace_seconds


@pytest.fixture
async def runtime(grace: float) -> AsyncGenerator[Runtime, None]:
    """A runtime in real time."""
    limits = Limits(cancel_grace_seconds=grace, agent_threads=5, agent_threads_per_principal=2)
    with trio.fail_after(30):
        async with make_runtime(simple_agents, outside.agents, limits=limits) as entered:
            yield entered


async def end_of(peer: Peer, job: Frame) -> Frame:
    """Return the payload of a job's terminal."""
    payload: Frame = (await peer.until_terminal(job["job_id"]))["payload"]
    return payload


def threads(runtime: Runtime, state: str) -> float:
    """Return a figure of the metrics."""
    return scrape(runtime)("agent_threads", state=state)


@pytest.mark.parametrize("agent", ["blocking", "awaiting"])
async def test_a_context_has_the_same_calls_everywhere(
    runtime: Runtime, peer: Peer, agent: str, tmp_path: Path
) -> None:
    """Every call does what it does on Trio: events in order, files, authority, a child."""
    job = await peer.submit(agent, str(tmp_path), lease_request=outside.lease(tmp_path))
    end = await end_of(peer, job)
    assert end.get("result") == outside.RESULT, end
    events = [frame["payload"]["kind"] for frame in peer.recorder.events(job["job_id"])]
    assert events == outside.KINDS


@pytest.mark.parametrize("agent", ["blocking-stream", "asyncio-stream"])
async def test_a_result_is_streamed(runtime: Runtime, peer: Peer, agent: str) -> None:
    """A streamed result is whole."""
    job = await peer.submit(agent)
    end = await end_of(peer, job)
    assert end["result_size"] == len("part 0\n" * 3)
    events = [frame["payload"] for frame in peer.recorder.events(job["job_id"])]
    assert "".join(each["body"]["data"] for each in events) == "part 0\npart 1\npart 2\n"


@pytest.mark.parametrize("agent", ["blocking-thoughts", "asyncio-thoughts"])
async def test_thoughts_are_told_by_the_sentence(runtime: Runtime, peer: Peer, agent: str) -> None:
    """Words become sentences, as on Trio."""
    job = await peer.submit(agent)
    await end_of(peer, job)
    events = [frame["payload"]["body"] for frame in peer.recorder.events(job["job_id"])]
    assert [body["text"] for body in events] == outside.SENTENCES


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_a_forgotten_await_is_told(runtime: Runtime, peer: Peer) -> None:
    """An agent under asyncio that forgets to await is told of it, as on Trio."""
    job = await peer.submit("forgetful")
    await end_of(peer, job)
    events = [frame["payload"]["body"] for frame in peer.recorder.events(job["job_id"])]
    assert events == outside.FORGOTTEN


@pytest.mark.parametrize("agent", ["refused", "refused-async"])
async def test_a_refusal_is_raised_in_the_agent(runtime: Runtime, peer: Peer, agent: str) -> None:
    """What the lease does not allow raises the class of its error, and ends the tool call."""

    @runtime.agent("refused")
    def refused(job: BlockingContext) -> Json:
        with pytest.raises(PermissionDenied):
            job.authorize("net.fetch", "https://example.com")
        with job.tool_call("shell.run"):
            raise AssertionError("not reached")

    @runtime.agent("refused-async", loop="asyncio")
    async def refused_async(job: AsyncioContext) -> Json:
        with pytest.raises(PermissionDenied):
            job.authorize("net.fetch", "https://example.com")
        async with job.tool_call("shell.run"):
            raise AssertionError("not reached")

    job = await peer.submit(agent)
    assert (await end_of(peer, job))["code"] == "PERMISSION_DENIED"
    bodies = [frame["payload"]["body"] for frame in peer.recorder.events(job["job_id"])]
    assert bodies[1]["error"]["code"] == "PERMISSION_DENIED"


async def test_a_thread_does_not_hold_the_loop(runtime: Runtime, peer: Peer) -> None:
    """While a plain function sleeps, other jobs run."""
    done = Event()

    @runtime.agent("busy")
    def busy(_job: BlockingContext) -> Json:
        return done.wait(10)

    slow = await peer.submit("busy")
    quick = await peer.submit("echo", 1)
    assert (await end_of(peer, quick))["result"] == 1
    done.set()
    assert (await end_of(peer, slow))["result"] is True


@pytest.mark.spec("1.0/7.4-1")
async def test_a_plain_function_is_cancelled_at_its_next_call(runtime: Runtime, peer: Peer) -> None:
    """`except Exception` does not stop the cancellation, and clean-up runs."""
    cleaned = Event()

    @runtime.agent("talker")
    def talker(job: BlockingContext) -> Json:
        try:
            while True:
                try:
                    job.log("on and on")
                    time.sleep(0.01)
                except Exception:  # noqa: BLE001 - what agents do
                    raise AssertionError("caught") from None
        except AgentCancelled:
            cleaned.set()
            raise

    job = await peer.submit("talker")
    await peer.expect("job.event")
    await peer.send("job.cancel", {"job_id": job["job_id"]})
    assert (await end_of(peer, job))["code"] == "CANCELLED"
    assert cleaned.is_set()


async def test_a_call_that_waits_is_cancelled(runtime: Runtime, peer: Peer) -> None:
    """A thread that waits for its child ends as soon as its job is cancelled."""

    @runtime.agent("parent")
    def parent(job: BlockingContext) -> Json:
        return job.delegate("sleeper").result()

    job = await peer.submit("parent", lease_request={"agent.delegate": ["sleeper"]})
    await peer.expect("job.accepted", parent_job_id=job["job_id"])
    await peer.send("job.cancel", {"job_id": job["job_id"]})
    assert (await end_of(peer, job))["code"] == "CANCELLED"
    assert threads(runtime, "abandoned") == 0


async def test_under_asyncio_a_cancel_is_asyncios(runtime: Runtime, peer: Peer) -> None:
    """The coroutine gets one `CancelledError`, and can still emit as it cleans up."""

    @runtime.agent("waiter", loop="asyncio")
    async def waiter(job: AsyncioContext) -> Json:
        try:
            await job.log("waiting")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await job.log("cleaning")  # noqa: ASYNC102 - asyncio cancels once
            raise

    job = await peer.submit("waiter")
    await peer.expect("job.event")
    await peer.send("job.cancel", {"job_id": job["job_id"]})
    assert (await end_of(peer, job))["code"] == "CANCELLED"
    bodies = [frame["payload"]["body"] for frame in peer.recorder.events(job["job_id"])]
    assert [body["message"] for body in bodies] == ["waiting", "cleaning"]


async def test_what_an_agent_does_not_wait_for_is_told(runtime: Runtime, peer: Peer) -> None:
    """Events that are on their way when an agent returns come before its end, and in order."""
    count = 3_000

    @runtime.agent("hasty", loop="asyncio")
    async def hasty(job: AsyncioContext) -> Json:
        logs = [asyncio.ensure_future(job.log(str(number))) for number in range(count)]
        await asyncio.sleep(0)
        return len(logs)

    job = await peer.submit("hasty")
    assert (await end_of(peer, job))["result"] == count
    events = [frame["payload"] for frame in peer.recorder.events(job["job_id"])]
    said = [event["body"]["message"] for event in events if event["kind"] == "log"]
    assert said == [str(number) for number in range(count)]


@does_not_stop
@pytest.mark.parametrize("kind", ["plain", "asyncio"])
async def test_a_thread_that_does_not_stop_is_abandoned(
    runtime: Runtime, peer: Peer, kind: str
) -> None:
    """The job ends by its time limit and grace; the thread is counted until it ends."""
    stop = Event()

    @runtime.agent("plain")
    def plain(_job: BlockingContext) -> Json:
        return stop.wait(20)

    @runtime.agent("asyncio", loop="asyncio")
    async def under_asyncio(_job: AsyncioContext) -> Json:
        return stop.wait(20)

    began = time.monotonic()
    job = await peer.submit(kind, max_runtime_sec=1)
    assert (await end_of(peer, job))["code"] == "TIMEOUT"
    assert time.monotonic() - began < 1 + GRACE + 10
    assert (threads(runtime, "running"), threads(runtime, "abandoned")) == (0, 1)
    stop.set()
    while threads(runtime, "abandoned"):  # noqa: ASYNC110 - the thread tells nobody
        await trio.sleep(0.01)
    assert threads(runtime, "running") == 0


@does_not_stop
async def test_the_threads_of_a_principal_are_bounded(runtime: Runtime, peer: Peer) -> None:
    """Past `agent_threads_per_principal` a job fails at once and names the limit."""
    stop = Event()

    @runtime.agent("stuck")
    def stuck(_job: BlockingContext) -> Json:
        return stop.wait(20)

    first = [await peer.submit("stuck"), await peer.submit("stuck", max_runtime_sec=1)]
    assert (await end_of(peer, first[1]))["code"] == "TIMEOUT"  # and its thread goes on
    refused = await end_of(peer, await peer.submit("stuck"))
    assert refused["details"] == {"limit": "agent_threads_per_principal", "max": 2}
    stop.set()
    assert (await end_of(peer, first[0]))["result"] is True


async def test_all_threads_together_are_bounded() -> None:
    """Past `agent_threads` a job of any principal fails at once and names the limit."""
    stop = Event()
    async with make_runtime(limits=Limits(agent_threads=1)) as runtime, open_peer(runtime) as peer:

        @runtime.agent("stuck")
        def stuck(_job: BlockingContext) -> Json:
            return stop.wait(20)

        await peer.hello()
        first = await peer.submit("stuck")
        refused = await end_of(peer, await peer.submit("stuck"))
        assert refused["details"] == {"limit": "agent_threads", "max": 1}
        stop.set()
        assert (await end_of(peer, first))["result"] is True


async def test_a_runtime_ends_without_its_stuck_threads() -> None:
    """The block of `async with runtime` ends within its bound although a thread goes on."""
    stop = Event()
    with trio.fail_after(8):
        async with make_runtime() as runtime, open_peer(runtime) as peer:

            @runtime.agent("stuck")
            def stuck(_job: BlockingContext) -> Json:
                return stop.wait(30)

            await peer.hello()
            await peer.submit("stuck")
    stop.set()


@pytest.mark.logs_error("agent failed")
@pytest.mark.parametrize("agent", ["loops", "sleeps", "yields"])
async def test_the_missing_word_is_named(runtime: Runtime, peer: Peer, agent: str) -> None:
    """An agent that uses the other loop's functions fails with what it should say instead."""

    @runtime.agent("sleeps")
    async def sleeps(_job: JobContext) -> Json:
        await asyncio.sleep(1)

    @runtime.agent("yields")
    async def yields(_job: JobContext) -> Json:
        await asyncio.sleep(0)

    @runtime.agent("loops", loop="asyncio")
    async def loops(_job: AsyncioContext) -> Json:
        await trio.sleep(1)

    end = await end_of(peer, await peer.submit(agent))
    assert end["code"] == "INTERNAL_ERROR"
    assert 'loop="asyncio"' in end["message"]


def test_a_context_of_another_kind_is_refused() -> None:
    """A function whose annotation names another kind of context cannot be registered."""
    agents = Agents()

    async def for_asyncio(_job: AsyncioContext) -> Json: ...

    async def for_trio(_job: JobContext) -> Json: ...

    def plain(_job: JobContext) -> Json: ...

    with pytest.raises(TypeError, match='write async def, with loop="asyncio"'):
        agents.agent("a")(for_asyncio)  # type: ignore[type-var]
    with pytest.raises(TypeError, match='write async def, without loop="asyncio"'):
        agents.agent("a", loop="asyncio")(for_trio)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="write async def"):
        agents.agent("a")(plain)
