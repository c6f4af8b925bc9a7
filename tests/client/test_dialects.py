"""Scripted runtimes of other vendors: the client understands what they write differently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    AgentNotAvailable,
    DuplicateKey,
    HeartbeatLost,
    JobCancelled,
    JobFailed,
    JobHandle,
    JobTimedOut,
    PermissionDenied,
    ResumeWindowExpired,
    connect,
)
from arcp_trio.testing.frames import Frame
from tests.client.support import TOKEN, Wire, scripted

PYTHON: dict[str, Any] = {"resume_token": "rtk_01ABC"}
TYPESCRIPT: dict[str, Any] = {"frame_id": "msg_1", "session_id": None, "accepted_at": None}
OTHER: dict[str, Any] = {"resume_token": "token", "accepted_at": None}

vendors = pytest.mark.parametrize("vendor", [PYTHON, TYPESCRIPT, OTHER])


@vendors
async def test_answers_without_a_request(autojump_clock: MockClock, vendor: Any) -> None:
    """Answers that name no request are taken in the order of the calls.

    The acceptance of a child answers no call.
    """

    async def script(wire: Wire) -> None:
        await wire.welcome(**vendor)
        first = await wire.receive("job.submit")
        second = await wire.receive("job.submit")
        await wire.accept("child", first, request_id=None, parent_job_id="job_0", delegate_id="d")
        await wire.accept("job_1", first, request_id=None)
        await wire.accept("job_2", second, request_id=None, budget={"USD": "USD:5.50"})
        await wire.receive("session.list_jobs")
        entry = {"job_id": "job_1", "agent": "a@1", "status": "running", "submitted_at": "now"}
        await wire.send("session.jobs", {"jobs": [entry]})
        await wire.receive("job.subscribe")
        # Its events come before the subscription is confirmed.
        await wire.log(1, "job_3", "history")
        job = {"job_id": "job_3", "agent": "a@1", "current_status": "running", "replayed": 1}
        await wire.send("job.subscribed", job)
        await wire.send("job.result", {"output": 3}, job_id="job_3", event_seq=2)
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        jobs: dict[int, JobHandle] = {}
        async with trio.open_nursery() as nursery:
            for n in range(2):
                nursery.start_soon(_submit_into, client.submit, jobs, n)
                await trio.testing.wait_all_tasks_blocked()
        assert {n: job.id for n, job in jobs.items()} == {0: "job_1", 1: "job_2"}
        assert jobs[1].budget == {"USD": 5.5}
        (info,) = [info async for info in client.jobs()]
        assert (info.created_at, info.lease, info.last_event_seq) == ("now", {}, None)
        observed = await client.subscribe("job_3", history=True)
        assert [event.body["message"] async for event in observed.events()] == ["history"]
        assert await observed.result() == 3


async def _submit_into(submit: Callable[..., Any], jobs: dict[int, JobHandle], n: int) -> None:
    jobs[n] = await submit("echo", n)


async def test_by_trace(autojump_clock: MockClock) -> None:
    """Acceptances out of order are matched by their trace where it is unique."""

    async def script(wire: Wire) -> None:
        await wire.welcome(**TYPESCRIPT)
        submits = [await wire.receive("job.submit") for _ in range(3)]
        for number in (2, 0, 1):
            frame = submits[number]
            payload = {"job_id": f"job_{frame['payload']['input']}"}
            await wire.send("job.accepted", payload, trace_id=frame["trace_id"])
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        jobs: dict[int, str] = {}

        async def submit(n: int) -> None:
            jobs[n] = (await client.submit("echo", n)).id

        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(submit, n)
        assert jobs == {n: f"job_{n}" for n in range(3)}


@vendors
async def test_refusals_without_a_request(autojump_clock: MockClock, vendor: Any) -> None:
    """A refusal that names no request fails the oldest call, or the one about its job."""

    async def script(wire: Wire) -> None:
        await wire.welcome(**vendor)
        await wire.accept("job_1")
        await wire.receive("job.submit")
        await wire.send("session.error", {"code": "AGENT_NOT_AVAILABLE", "message": "who?"})
        await wire.receive("job.submit")
        refusal = {"code": "AGENT_NOT_AVAILABLE", "message": "who?", "final_status": "error"}
        await wire.send("job.error", refusal, job_id="job_fresh", event_seq=1)
        await wire.receive("job.submit")
        refusal = {"code": "DUPLICATE_KEY", "message": "another", "final_status": "error"}
        await wire.send("job.error", refusal, job_id="job_1", event_seq=2)
        await wire.receive("job.cancel")
        refusal = {"code": "PERMISSION_DENIED", "message": "not you", "final_status": "error"}
        await wire.send("job.error", refusal, job_id="job_1", event_seq=3)
        await wire.result(4, "job_1", "unharmed")
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        job = await client.submit("echo")
        for expected in (AgentNotAvailable, AgentNotAvailable, DuplicateKey):
            with pytest.raises(expected):
                await client.submit("echo")
        with pytest.raises(PermissionDenied):
            await job.cancel()
        assert await job.result() == "unharmed"


@vendors
async def test_ends(autojump_clock: MockClock, vendor: Any) -> None:
    """Ends of jobs are understood in other forms, and one of them answers a cancel."""

    async def script(wire: Wire) -> None:
        await wire.welcome(**vendor)
        for number in range(1, 6):
            await wire.accept(f"job_{number}")
        await wire.result(1, "job_1", final_status="timed_out", completed_at="now")
        await wire.send("job.error", {"code": "TIMEOUT"}, job_id="job_2", event_seq=2)
        await wire.send("job.error", {"code": "CANCELLED"}, job_id="job_3", event_seq=3)
        await wire.send("job.error", {"code": "ODD_CODE"}, job_id="job_4", event_seq=4)
        await wire.receive("job.cancel")
        await wire.result(5, "job_5", final_status="cancelled")
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        jobs = [await client.submit("echo") for _ in range(5)]
        for job, expected in zip(jobs, (JobTimedOut, JobTimedOut, JobCancelled), strict=False):
            with pytest.raises(expected):
                await job.result()
        with pytest.raises(JobFailed) as odd:
            await jobs[3].result()
        assert odd.value.code == "ODD_CODE"
        await jobs[4].cancel()
        with pytest.raises(JobCancelled):
            await jobs[4].result()


async def test_subscriptions_that_count_alone(autojump_clock: MockClock) -> None:
    """Subscriptions that are numbered apart are not taken for gaps or repeats."""

    async def script(wire: Wire) -> None:
        await wire.welcome(**PYTHON)
        await wire.accept("job_1")
        await wire.log(1, "job_1", "own 1")
        await wire.log(2, "job_1", "own 2")
        subscribe = await wire.receive("job.subscribe")
        for number in range(1, 4):
            await wire.log(number, "job_2", f"theirs {number}")
        job = {"request_id": subscribe["id"], "job_id": "job_2", "agent": "a", "replayed": 3}
        await wire.send("job.subscribed", job | {"current_status": "running"})
        await wire.log(3, "job_1", "own 3")
        await wire.log(4, "job_2", "theirs 4")
        await wire.result(5, "job_2")
        await wire.result(4, "job_1")
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        own = await client.submit("echo")
        theirs = await client.subscribe("job_2", history=True)
        assert [e.body["message"] async for e in theirs.events()] == [
            f"theirs {n}" for n in range(1, 5)
        ]
        assert [e.body["message"] async for e in own.events()] == [f"own {n}" for n in range(1, 4)]
        assert len(runtime.wires) == 1


async def test_a_caught_up_resume_that_is_refused(autojump_clock: MockClock) -> None:
    """A resume that is refused because no frame is missing asks for one frame more."""

    async def first(wire: Wire) -> None:
        await wire.welcome(**TYPESCRIPT)
        await wire.accept("job_1")
        await wire.log(1, "job_1", "one")

    async def refuse(wire: Wire) -> None:
        frame = await wire.receive("session.hello")
        asked.append(frame["payload"]["resume"]["last_event_seq"])
        await wire.send("session.error", {"code": "RESUME_WINDOW_EXPIRED", "message": "no"})

    async def second(wire: Wire) -> None:
        hello = await wire.welcome(**TYPESCRIPT)
        asked.append(hello["payload"]["resume"]["last_event_seq"])
        await wire.log(1, "job_1", "one")
        listing = await wire.receive("session.list_jobs")
        await wire.send("session.jobs", {"request_id": listing["id"], "jobs": []})
        await wire.end()

    asked: list[int] = []
    async with scripted(first, refuse, second) as runtime:
        async with connect(runtime.open, token=TOKEN) as client:
            job = await client.submit("echo")
            # The runtime has forgotten the job. Another submit might start it again.
            with pytest.raises(HeartbeatLost, match="not known"):
                await job.result()
            for events in (job.events(), job.events()):
                assert (await anext(events)).body["message"] == "one"
                with pytest.raises(ResumeWindowExpired, match="lost with the connection"):
                    await anext(events)
        assert asked == [1, 0]


async def test_a_resume_that_comes_too_early(autojump_clock: MockClock) -> None:
    """A resume refused because the runtime has not noticed the loss yet is tried again."""

    async def first(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")

    async def refuse(wire: Wire) -> None:
        await wire.receive("session.hello")
        await wire.send("session.error", {"code": "PERMISSION_DENIED", "message": "still here"})

    async def second(wire: Wire) -> None:
        await wire.welcome()
        await wire.result(1, "job_1", "at last")
        await wire.end()

    async with (
        scripted(first, refuse, refuse, second) as runtime,
        connect(runtime.open, token=TOKEN) as client,
    ):
        assert await (await client.submit("echo")).result() == "at last"


async def test_the_end_of_a_job_is_asked_for(autojump_clock: MockClock) -> None:
    """Where a resume brings no frames, the same submit brings the job's end, or the job is lost."""

    async def first(wire: Wire) -> None:
        await wire.welcome(**PYTHON)
        for number in (1, 2):
            submits.append(await wire.receive("job.submit"))
            await wire.accept(f"job_{number}", submits[-1])

    async def second(wire: Wire) -> None:
        await wire.welcome(**PYTHON)
        listing = await wire.receive("session.list_jobs")
        entries = [{"job_id": f"job_{n}", "agent": "a", "status": "success"} for n in (1, 2)]
        await wire.send("session.jobs", {"request_id": listing["id"], "jobs": entries})
        for number in (1, 2):
            again = await wire.receive("job.submit")
            assert again["payload"] == submits[number - 1]["payload"]
            await wire.accept(f"job_{number}", again)
            if number == 1:
                await wire.result(1, "job_1", "kept")
        await wire.end()

    submits: list[Frame] = []
    async with scripted(first, second) as runtime, connect(runtime.open, token=TOKEN) as client:
        jobs = [await client.submit("echo", n) for n in range(2)]
        assert await jobs[0].result() == "kept"
        with pytest.raises(HeartbeatLost, match="end was lost"):
            await jobs[1].result()


async def test_an_invalid_listing_during_recovery(autojump_clock: MockClock) -> None:
    """A listing that cannot be read costs the jobs of a recovery, and not the session."""

    async def first(wire: Wire) -> None:
        await wire.welcome(**PYTHON)
        await wire.accept("job_1")

    async def second(wire: Wire) -> None:
        await wire.welcome(**PYTHON)
        listing = await wire.receive("session.list_jobs")
        await wire.send("session.jobs", {"request_id": listing["id"], "jobs": 5})
        await wire.accept("job_2")
        await wire.result(1, "job_2", "fine")
        await wire.end()

    async with scripted(first, second) as runtime, connect(runtime.open, token=TOKEN) as client:
        job = await client.submit("echo")
        with pytest.raises(HeartbeatLost, match="not known"):
            await job.result()
        assert await (await client.submit("echo")).result() == "fine"
