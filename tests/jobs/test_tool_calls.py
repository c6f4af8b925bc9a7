"""`job.tool_call`: each call has its event, and one result (§8.2, §9.3)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    ArcpError,
    InvalidEvent,
    JobContext,
    JobError,
    JobFailed,
    Limits,
    PermissionDenied,
    Runtime,
)
from arcp_trio.testing import Peer, open_peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.jobs import doer
from tests.jobs.acting import Act, start
from tests.stage import make_runtime

LEASE: Frame = {"tool.call": ["**"]}


@pytest.fixture
async def runtime() -> AsyncGenerator[Runtime, None]:
    """A runtime whose frames are small."""
    async with make_runtime(limits=Limits(frame_bytes_out=10_000)) as entered:
        yield entered


async def ended(runtime: Runtime, peer: Peer, act: Act) -> tuple[Frame, list[Frame]]:
    """Have an agent do this; return the terminal's payload and the events' bodies."""
    return await doer.whole(peer, await start(runtime, peer, act, lease_request=LEASE))


def answer(bodies: list[Frame]) -> Frame:
    """Return the one tool result, which must belong to the one tool call."""
    call, result = [body for body in bodies if "call_id" in body]
    assert "tool" in call
    assert call["call_id"] == result["call_id"]
    return {name: value for name, value in result.items() if name != "call_id"}


@pytest.mark.spec("9.3-3")
async def test_a_call_is_two_events(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A call emits `tool_call` with its arguments, then `tool_result` when its block ends."""

    async def act(job: JobContext) -> Json:
        async with job.tool_call("search.web", {"q": "trio"}) as call:
            await job.log(call.id)
            call.result = {"hits": [1, None]}
        async with job.tool_call("nothing") as call:
            pass

    end, bodies = await ended(runtime, peer, act)
    call_id = bodies[0]["call_id"]
    assert bodies[:3] == [
        {"tool": "search.web", "call_id": call_id, "args": {"q": "trio"}},
        {"level": "info", "message": call_id},
        {"call_id": call_id, "result": {"hits": [1, None]}},
    ]
    assert bodies[3] == {"tool": "nothing", "call_id": bodies[4]["call_id"]}
    assert bodies[4] == {"call_id": bodies[3]["call_id"], "result": None}
    assert end["final_status"] == "success"


@pytest.mark.spec("1.0/14-2", "12-1")
@pytest.mark.logs_error("agent failed .*agent=actor")
async def test_an_exception_is_the_calls_error_without_its_words(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """An exception is the call's error without its text, and is raised in the agent."""

    async def act(job: JobContext) -> Json:
        async with job.tool_call("t"):
            raise ValueError("hunter2")

    end, bodies = await ended(runtime, peer, act)
    assert answer(bodies)["error"] == {
        "code": "INTERNAL_ERROR",
        "message": "the tool call failed",
        "retryable": True,
    }
    assert end["code"] == "INTERNAL_ERROR"
    assert "hunter2" not in str([end, bodies])


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (PermissionDenied("not that one", details={"why": "policy"}), "PERMISSION_DENIED", None),
        (JobError("out of paper"), "INTERNAL_ERROR", None),
        (ExceptionGroup("", [PermissionDenied("in a nursery")]), "PERMISSION_DENIED", None),
        (JobFailed("no such code", code="X_RATE_LIMIT"), "INTERNAL_ERROR", "the tool call failed"),
        (JobError("x" * 20_000), "INTERNAL_ERROR", "the tool call failed"),
        (JobError("x" * 9_400), "INTERNAL_ERROR", "the tool call failed"),
        (JobError("bad", details={"x": object()}), "INTERNAL_ERROR", "the tool call failed"),
        (
            ExceptionGroup("", [JobError("one"), JobError("two")]),
            "INTERNAL_ERROR",
            "the tool call failed",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_an_error_that_was_meant_for_the_client_reaches_it(
    peer: Peer,
    runtime: Runtime,
    raised: Exception,
    code: str,
    message: str | None,
    autojump_clock: MockClock,
) -> None:
    """A JobError is the call's error with its text, as far as a frame can hold it."""

    async def act(job: JobContext) -> Json:
        with pytest.raises(type(raised)) as caught:
            async with job.tool_call("t"):
                raise raised
        assert caught.value is raised
        return "went on"

    end, bodies = await ended(runtime, peer, act)
    error = answer(bodies)["error"]
    assert error["code"] == code
    said = raised.exceptions[0] if isinstance(raised, ExceptionGroup) else raised  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if message is None:
        assert isinstance(said, ArcpError)
        assert (error["message"], error.get("details", {})) == (said.message, said.details)
    else:
        assert (error["message"], error.keys()) == (message, {"code", "message", "retryable"})
    assert end["result"] == "went on"


@pytest.mark.parametrize(
    ("result", "expected", "code"),
    [
        (object(), InvalidEvent, "INTERNAL_ERROR"),
        ({1: "a key"}, InvalidEvent, "INTERNAL_ERROR"),
        (float("nan"), InvalidEvent, "INTERNAL_ERROR"),
        (2**64, InvalidEvent, "INTERNAL_ERROR"),
        ("\ud800", InvalidEvent, "INTERNAL_ERROR"),
        ("x" * 20_000, ArcpError, "INTERNAL_ERROR"),
    ],
    ids=["object", "key", "nan", "long", "surrogate", "oversized"],
)
async def test_a_result_that_cannot_be_sent_is_the_calls_error(
    peer: Peer,
    runtime: Runtime,
    result: Any,
    expected: type[Exception],
    code: str,
    autojump_clock: MockClock,
) -> None:
    """A result that cannot be sent makes the call's result an error, and raises."""

    async def act(job: JobContext) -> Json:
        with pytest.raises(expected):
            async with job.tool_call("t") as call:
                call.result = result
        return "went on"

    end, bodies = await ended(runtime, peer, act)
    assert answer(bodies)["error"]["code"] == code
    assert end["result"] == "went on"


@pytest.mark.parametrize("args", [object(), {1: 2}, "x" * 20_000], ids=["object", "key", "long"])
async def test_arguments_that_cannot_be_sent_are_no_call(
    peer: Peer, runtime: Runtime, args: Any, autojump_clock: MockClock
) -> None:
    """Arguments that cannot be sent raise before anything is emitted or called."""

    async def act(job: JobContext) -> Json:
        with pytest.raises((InvalidEvent, ArcpError)):
            async with job.tool_call("t", args):
                raise AssertionError("never reached")

    end, bodies = await ended(runtime, peer, act)
    assert (end["final_status"], bodies) == ("success", [])


@pytest.mark.spec("7.4-2")
@pytest.mark.parametrize("shielded", [False, True])
async def test_a_call_that_is_cancelled_has_its_end_before_the_jobs(
    peer: Peer, runtime: Runtime, *, shielded: bool, autojump_clock: MockClock
) -> None:
    """A cancelled call gets the result CANCELLED; nested calls end innermost first."""

    async def act(job: JobContext) -> Json:
        async with job.tool_call("outer"), job.tool_call("inner"):
            with trio.CancelScope(shield=shielded):
                await trio.sleep(10)
            await trio.lowlevel.checkpoint()

    job_id = await start(runtime, peer, act, lease_request=LEASE)
    await trio.sleep(1)
    await peer.send("job.cancel", {"job_id": job_id})
    end, bodies = await doer.whole(peer, job_id)
    outer, inner, first, second = bodies
    assert [first["call_id"], second["call_id"]] == [inner["call_id"], outer["call_id"]]
    assert [body["error"]["code"] for body in (first, second)] == ["CANCELLED"] * 2
    assert end["final_status"] == "cancelled"


@pytest.mark.spec("7.4-2")
async def test_a_call_that_is_cancelled_as_it_begins_has_its_end(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A call that is cancelled before its block is entered gets a result, too."""

    async def act(job: JobContext) -> Json:
        with trio.CancelScope() as scope:
            scope.cancel()
            async with job.tool_call("t"):
                raise AssertionError("never reached")
        return scope.cancelled_caught

    end, bodies = await ended(runtime, peer, act)
    assert answer(bodies)["error"]["code"] == "CANCELLED"
    assert end["result"] is True


@pytest.mark.spec("7.4-2")
async def test_a_call_of_an_agent_that_was_cut_off_is_not_heard_of(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A call that ends after the terminal raises in its agent and emits nothing."""
    caught: list[BaseException] = []

    async def act(job: JobContext) -> Json:
        try:
            with trio.CancelScope(shield=True):
                async with job.tool_call("t") as call:
                    await trio.sleep(50)
                    call.result = "too late"
        except ArcpError as error:
            caught.append(error)

    job_id = await start(runtime, peer, act, lease_request=LEASE)
    await trio.sleep(1)
    await peer.send("job.cancel", {"job_id": job_id})
    await peer.until_terminal(job_id)
    await trio.sleep(50)
    (error,) = caught
    assert isinstance(error, ArcpError)
    assert error.code == "CANCELLED"
    with trio.move_on_after(5):
        raise AssertionError(await peer.receive())


async def test_calls_beside_each_other_do_not_mix(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Each result has its own call's id, in whatever order concurrent calls end."""

    async def act(job: JobContext) -> Json:
        async def one(n: int) -> None:
            async with job.tool_call(f"t{n}", n) as call:
                await trio.sleep(n * 7 % 10)
                call.result = n

        async with trio.open_nursery() as nursery:
            for n in range(10):
                nursery.start_soon(one, n)

    _, bodies = await ended(runtime, peer, act)
    calls = {body["call_id"]: body["args"] for body in bodies if "tool" in body}
    results = {body["call_id"]: body["result"] for body in bodies if "tool" not in body}
    assert len(calls) == 10
    assert results == calls
    assert list(results.values()) == sorted(range(10), key=lambda n: n * 7 % 10)


async def test_an_agent_that_is_always_refused_lets_others_have_their_turn(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A loop of refused calls neither starves other jobs nor escapes a cancel."""

    async def act(job: JobContext) -> Json:
        while True:
            with trio.fail_after(100):
                try:
                    async with job.tool_call("t"):
                        raise AssertionError("never reached")
                except PermissionDenied:
                    pass

    job_id = await start(runtime, peer, act, lease_request={})
    await peer.send("job.cancel", {"job_id": job_id})
    with trio.fail_after(5):
        end, _ = await doer.whole(peer, job_id)
    assert end["final_status"] == "cancelled"


async def test_the_client_reads_the_same_error_as_the_agent(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Client and agent get the same error of a refused call."""
    said: list[str] = []

    async def act(job: JobContext) -> Json:
        with pytest.raises(PermissionDenied) as caught:
            async with job.tool_call("shell.run"):
                raise AssertionError("never reached")
        said.append(caught.value.message)

    async with open_peer(runtime) as peer:
        await peer.hello()
        job_id = await start(runtime, peer, act, lease_request={})
        _, bodies = await doer.whole(peer, job_id)
    assert [answer(bodies)["error"]["message"]] == said
    assert "shell.run" in said[0]


@pytest.mark.parametrize("ended_by", ["return", "error", "cut off"])
async def test_a_call_that_is_left_open_ends_with_the_job(
    runtime: Runtime, ended_by: str, autojump_clock: MockClock
) -> None:
    """A call that was told by hand and not ended has a result before the job's end."""

    async def act(job: JobContext) -> Json:
        for call_id in ("ended", "open"):
            await job.emit("tool_call", {"tool": "t", "call_id": call_id})
        await job.emit("tool_result", {"call_id": "ended", "result": 1})
        if ended_by == "error":
            raise JobError("no")
        if ended_by == "cut off":
            with trio.CancelScope(shield=True):
                await trio.sleep(100)

    async with open_peer(runtime) as peer:
        await peer.hello()
        job_id = await start(runtime, peer, act, lease_request={})
        if ended_by == "cut off":
            await trio.sleep(1)
            await peer.send("job.cancel", {"job_id": job_id})
        _, bodies = await doer.whole(peer, job_id)
    results = [body for body in bodies if "tool" not in body]
    assert [body["call_id"] for body in results] == ["ended", "open"]
    assert results[1]["error"]["code"] == "CANCELLED"
