"""Calls and their answers: which answer is for which call, refusals, and cancelled calls."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    AgentNotAvailable,
    ArcpError,
    InvalidRequest,
    JobCancelled,
    JobNotFound,
    PermissionDenied,
    ProtocolError,
    connect,
)
from tests.client.support import TOKEN, Network, Wire, real_runtime, scripted


async def test_concurrent_submits_each_get_their_own(autojump_clock: MockClock) -> None:
    """Each of 200 concurrent submits with one trace id gets the result of its own input."""
    results: dict[int, object] = {}

    async def one(n: int) -> None:
        job = await client.submit("echo", n, trace_id="ab" * 16)
        results[n] = await job.result()

    async with (
        real_runtime(jobs_per_principal=300) as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
        trio.open_nursery() as nursery,
    ):
        for n in range(200):
            nursery.start_soon(one, n)
    assert results == {n: n for n in range(200)}


async def test_no_fast_answer_is_missed(autojump_clock: MockClock) -> None:
    """No call of 10,000 hangs with a runtime that answers in the same instant."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        while True:
            frame = await wire.receive()
            if frame["type"] == "session.close":
                return
            payload = {"request_id": frame["id"], "jobs": [], "next_cursor": None}
            await wire.send("session.jobs", payload)

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        for _ in range(10_000):
            assert [info async for info in client.jobs()] == []


async def test_a_refusal_reaches_its_call(autojump_clock: MockClock) -> None:
    """A refusal is raised as the class of its code, with its message, by its call alone."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        running = await client.submit("stuck")
        with pytest.raises(AgentNotAvailable) as refused:
            await client.submit("nobody")
        assert refused.value.code == "AGENT_NOT_AVAILABLE"
        assert refused.value.message
        assert refused.value.retryable is False
        with pytest.raises(JobNotFound):
            await client.subscribe("job_none")
        with pytest.raises(InvalidRequest):
            [info async for info in client.jobs(status=["odd"])]
        # Only these calls failed.
        await running.cancel()
        with pytest.raises(JobCancelled):
            await running.result()


@pytest.mark.spec("9.5-2")
async def test_what_cannot_be_sent_hurts_nothing(autojump_clock: MockClock) -> None:
    """Invalid arguments raise at once, and the next submit gets its own job."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        for wrong in (float("nan"), object(), {"deep": [float("inf")]}):
            with pytest.raises(ValueError, match="@"):
                await client.submit("echo", wrong)
        with pytest.raises(ValueError, match="future"):
            await client.submit("echo", expires_in=0)
        with pytest.raises(ValueError, match="money"):
            await client.submit("echo", budget={"USD": "much"})
        assert await (await client.submit("echo", "fine")).result() == "fine"


async def test_every_call_can_be_given_up(autojump_clock: MockClock) -> None:
    """Every call can be cancelled in time, and the client goes on."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        late = await wire.receive("job.submit")
        await wire.receive("session.list_jobs")
        await wire.receive("job.subscribe")
        await wire.receive("job.cancel")
        await trio.sleep(1)
        # The answers come when their calls are cancelled already.
        await wire.accept("job_late", late)
        await wire.log(1, "job_late", "from afar")
        await wire.send("job.cancelled", {"job_id": "job_1"}, job_id="job_1")
        await wire.accept("job_2")
        await wire.result(2, "job_2", "second")
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        job = await client.submit("echo")
        for call in (
            lambda: client.submit("echo"),
            lambda: anext(client.jobs()),
            lambda: client.subscribe("job_3"),
            job.cancel,
            job.result,
            lambda: anext(job.events()),
            client.wait_closed,
        ):
            before = trio.current_time()
            with trio.move_on_after(0.1) as given_up:
                await call()
            assert given_up.cancelled_caught
            assert trio.current_time() - before < 0.2
        other = await client.submit("echo")
        assert other.id == "job_2"
        assert await other.result() == "second"


@pytest.mark.spec("1.0/8.2-2")
async def test_strays_are_ignored(autojump_clock: MockClock) -> None:
    """Answers to no call, frames of unknown jobs and unknown frame types are ignored."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.send("session.jobs", {"request_id": "stray", "jobs": [], "next_cursor": None})
        await wire.send("session.jobs", {"jobs": [], "next_cursor": None})
        await wire.send("job.accepted", {"job_id": "", "request_id": "stray"})
        await wire.send("job.cancelled", {"job_id": "job_9"}, job_id="job_9")
        await wire.send("job.subscribed", {"job_id": "job_9", "agent": "a", "current_status": "?"})
        await wire.send("session.novelty", {"of": "tomorrow"})
        await wire.send("x-vendor.acme.hello", {})
        await wire.send("session.error", {"code": "INTERNAL_ERROR", "message": "by the way"})
        await wire.event(1, "job_9", "x-vendor.acme.kind", [1])
        await wire.result(2, "job_9")
        await wire.accept("job_1")
        await wire.result(3, "job_1", "right")
        await wire.end()

    async with scripted(script) as runtime:
        async with connect(runtime.open, token=TOKEN) as client:
            assert await (await client.submit("echo")).result() == "right"
        # The client sends nothing about any of them.
        said = [frame["type"] for frame in runtime.wires[0].seen]
        assert said == ["session.hello", "job.submit", "session.close"]


async def test_an_invalid_answer_fails_its_call_alone(autojump_clock: MockClock) -> None:
    """An invalid payload is a protocol error of the one call or job that it is about."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        listing = await wire.receive("session.list_jobs")
        await wire.send("session.jobs", {"request_id": listing["id"], "jobs": [{"job_id": 7}]})
        submit = await wire.receive("job.submit")
        await wire.send("job.accepted", {"request_id": submit["id"], "job_id": ["x"]})
        await wire.accept("job_1")
        await wire.send("job.result", {"result_id": 5}, job_id="job_1", event_seq=1)
        await wire.accept("job_2")
        await wire.result(2, "job_2", 2)
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        with pytest.raises(ProtocolError):
            [info async for info in client.jobs()]
        with pytest.raises(ProtocolError):
            await client.submit("echo")
        with pytest.raises(ProtocolError):
            await (await client.submit("echo")).result()
        assert await (await client.submit("echo")).result() == 2


async def test_a_reply_just_before_the_end_counts(autojump_clock: MockClock) -> None:
    """The caller gets a result that arrives in one packet with the end of the connection."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        await wire.result(1, "job_1", "just in time")

    async with scripted(script) as runtime:
        stream = await runtime.open()
        async with connect(stream, token=TOKEN) as client:
            job = await client.submit("echo")
            assert await job.result() == "just in time"


async def test_what_looks_right_and_is_not_is_refused(autojump_clock: MockClock) -> None:
    """A string instead of patterns, a second budget and an empty key are refused."""
    async with real_runtime() as runtime, connect(Network(runtime).open, token=TOKEN) as client:
        with pytest.raises(TypeError, match=r"tool\.call: expected a list of patterns"):
            await client.submit("echo", lease={"tool.call": "abc"})
        with pytest.raises(ValueError, match="USD is in the budget, and in the lease's"):
            await client.submit("echo", lease={"cost.budget": ["USD:5"]}, budget={"USD": "4"})
        with pytest.raises(InvalidRequest, match="idempotency_key"):
            await client.submit("echo", idempotency_key="")


async def test_what_was_not_negotiated_is_not_used(autojump_clock: MockClock) -> None:
    """A client that offers no features connects, and calls that need one raise."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN, features=()) as client,
    ):
        assert client.features == frozenset()
        assert {"count", "echo"} <= {agent.name for agent in client.agents}
        with pytest.raises(InvalidRequest, match="list_jobs"):
            client.jobs()
        with pytest.raises(InvalidRequest, match="subscribe"):
            await client.subscribe("job_1")
        job = await client.submit("count", 3)
        assert len([event async for event in job.events()]) == 3


async def test_a_refused_cancel(autojump_clock: MockClock) -> None:
    """Cancelling a job that has ended raises."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        job = await client.submit("echo")
        await job.result()
        with pytest.raises(ArcpError, match="success"):
            await job.cancel()


async def test_a_stop_from_another_session(autojump_clock: MockClock) -> None:
    """`stop` ends a job that another session has submitted, where `cancel` is refused."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
        connect(Network(runtime).open, token=TOKEN) as other,
    ):
        job = await client.submit("stuck")
        with pytest.raises(PermissionDenied):
            await other.cancel(job.id)
        await other.stop(job.id, "enough")
        with pytest.raises(JobCancelled, match="enough") as end:
            await job.result()
        assert end.value.details == {"stopped_by": "alice", "reason": "enough"}
        with pytest.raises(InvalidRequest, match="has ended"):
            await other.stop(job.id)
        with pytest.raises(JobNotFound):
            await other.stop("job_none")


async def test_a_stop_whose_answer_is_lost(autojump_clock: MockClock) -> None:
    """A stop survives the loss of its connection: the next connection brings its answer."""
    async with real_runtime() as runtime:
        network = Network(runtime)
        async with (
            connect(Network(runtime).open, token=TOKEN) as client,
            connect(network.open, token=TOKEN) as other,
        ):
            job = await client.submit("stuck")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other.stop, job.id)
                await network.cut()
            with pytest.raises(JobCancelled):
                await job.result()


@pytest.mark.parametrize(("reason", "sent"), [(None, "no longer needed"), ("enough", "enough")])
async def test_a_stop_where_there_is_none(
    reason: str | None, sent: str, autojump_clock: MockClock
) -> None:
    """Where the runtime does not know `stop`, the client asks it to cancel the job."""

    async def script(wire: Wire) -> None:
        await wire.welcome(capabilities={"encodings": ["json"], "features": ["ack"]})
        asked = await wire.receive("job.cancel")
        assert asked["payload"] == {"job_id": "job_1", "reason": sent}
        await wire.send("job.cancelled", {"job_id": "job_1"}, job_id="job_1")
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        await client.stop("job_1", reason)
