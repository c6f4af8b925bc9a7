"""What an agent may raise and return, and what its client is told (§7.3, §12)."""

from __future__ import annotations

import json
from decimal import Decimal

import attrs
import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    AgentNotAvailable,
    ArcpError,
    BudgetExhausted,
    InvalidInput,
    JobCancelled,
    JobContext,
    JobError,
    JobFailed,
    JobTimedOut,
    LeaseExpired,
    PermissionDenied,
    Runtime,
)
from arcp_trio.testing import Peer
from arcp_trio.wire.json import Json
from tests.jobs.acting import Act, end_of, play

SECRET = "hunter2"


def raising(error: BaseException) -> Act:
    """Return an agent that raises this."""

    async def act(_job: JobContext) -> Json:
        raise error

    return act


def returning(value: Json) -> Act:
    """Return an agent that returns this."""

    async def act(_job: JobContext) -> Json:
        return value

    return act


# -- what an agent may raise


class Rude(BaseException):
    """An exception that is not an `Exception`, so that `except Exception` misses it."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(SECRET),
        KeyError(SECRET),
        SystemExit(SECRET),
        StopIteration(SECRET),
        StopAsyncIteration(SECRET),
        Rude(SECRET),
        GeneratorExit(SECRET),
        TimeoutError(SECRET),
        trio.TooSlowError(SECRET),
        RecursionError(SECRET),
        ExceptionGroup(SECRET, [ValueError(SECRET), OSError(SECRET)]),
        BaseExceptionGroup(SECRET, [SystemExit(SECRET), Rude(SECRET)]),
        BaseExceptionGroup(SECRET, [ExceptionGroup(SECRET, [ValueError(SECRET)]), Rude()]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.logs_error(SECRET)
@pytest.mark.spec("12-7")
async def test_an_exception_is_the_agents_own(
    runtime: Runtime, peer: Peer, error: BaseException, autojump_clock: MockClock
) -> None:
    """Any exception ends its own job with INTERNAL_ERROR, and its text stays off the wire."""

    @runtime.agent("raising")
    async def raising(_job: JobContext) -> Json:
        await trio.sleep(1)
        raise error

    beside = await peer.submit("sleeper", max_runtime_sec=5)
    job = await peer.submit("raising")
    end = await peer.until_terminal(job["job_id"])
    assert end["type"] == "job.error"
    assert end["payload"]["code"] == "INTERNAL_ERROR"
    assert end["payload"]["final_status"] == "error"
    assert end["payload"]["retryable"] is True
    assert SECRET not in json.dumps(end)
    assert "Traceback" not in json.dumps(end)
    end = await peer.until_terminal(beside["job_id"])
    assert end["payload"]["final_status"] == "timed_out"


@pytest.mark.logs_error("agent=confused")
async def test_somebody_elses_cancellation_ends_no_runtime(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """An agent that keeps a `trio.Cancelled` and raises it later fails like any other."""

    @runtime.agent("confused")
    async def confused(_job: JobContext) -> Json:
        kept: list[BaseException] = []
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.sleep(1)
            except trio.Cancelled as error:  # noqa: ASYNC103 - that is its fault
                kept.append(error)
        raise kept[0]

    job = await peer.submit("confused")
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["code"] == "INTERNAL_ERROR"
    await peer.submit("echo")


@pytest.mark.parametrize(
    "error",
    [
        BudgetExhausted("the money is gone", details={"currency": "USD"}),
        LeaseExpired("too late"),
        PermissionDenied("not for you"),
        AgentNotAvailable("no helper"),
        JobFailed("a job elsewhere failed", code="BUDGET_EXHAUSTED", retryable=False),
        JobError("the words of the agent", {"hint": ["read", "this"]}),
        InvalidInput("the input has no name", {"field": "name"}),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.spec("7.3-2", "12-9", "1.0/12-1")
async def test_an_arcp_error_ends_the_job_in_its_own_words(
    runtime: Runtime, peer: Peer, error: ArcpError, autojump_clock: MockClock, *, wrapped: bool
) -> None:
    """An ArcpError's code, message and details reach the client, even out of a nursery's group."""

    async def fail() -> None:
        raise error

    async def act(_job: JobContext) -> Json:
        if wrapped:
            async with trio.open_nursery() as outer, trio.open_nursery() as inner:
                outer.start_soon(trio.sleep_forever)
                inner.start_soon(fail)
        await fail()

    payload = await end_of(runtime, peer, act)
    assert payload["final_status"] == "error"
    assert payload["code"] == error.code
    assert payload["message"] == error.message
    assert payload["retryable"] is (error.code == "INTERNAL_ERROR")
    assert payload.get("details", {}) == error.details


@pytest.mark.parametrize(
    "error",
    [
        JobCancelled("my helper was cancelled"),
        JobTimedOut("my helper was slow"),
        JobFailed("my helper was cancelled", code="CANCELLED"),
        JobFailed("my helper was slow", code="TIMEOUT"),
        ArcpError("a code from the future", code="NO_SUCH_CODE"),
    ],
    ids=lambda error: f"{type(error).__name__}-{error.code}",
)
@pytest.mark.spec("12-1")
async def test_a_code_that_would_lie_becomes_internal_error(
    runtime: Runtime, peer: Peer, error: ArcpError, autojump_clock: MockClock
) -> None:
    """A job whose helper was cancelled does not end as cancelled; unknown codes are not sent."""
    payload = await end_of(runtime, peer, raising(error))
    assert payload["final_status"] == "error"
    assert payload["code"] == "INTERNAL_ERROR"
    assert payload["message"] == error.message


def _changed(error: ArcpError, **fields: object) -> ArcpError:
    for name, value in fields.items():
        setattr(error, name, value)
    return error


class UnmadeError(JobError):
    """An exception whose constructor does not call the one it overrides."""

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    "error",
    [
        JobError("x", {"it": object()}),
        JobError("x", {"it": float("nan")}),
        JobError("x", {"it": b"bytes"}),
        JobError("x", {"it": "y" * 2**21}),
        JobError("x" * 2**21),
        JobError("x", {"it": "\ud800"}),
        JobError(""),
        _changed(JobError("x"), message=7),
        _changed(JobError("x"), retryable="perhaps"),
        _changed(JobError("x"), details=[1]),
        UnmadeError(),
    ],
    ids=range(11),
)
@pytest.mark.logs_error("agent=actor")
async def test_an_error_that_cannot_be_sent_is_a_failure(
    runtime: Runtime, peer: Peer, error: ArcpError, autojump_clock: MockClock
) -> None:
    """An error that cannot be sent becomes INTERNAL_ERROR without details; the runtime goes on."""
    payload = await end_of(runtime, peer, raising(error))
    assert payload["code"] == "INTERNAL_ERROR"
    assert payload["final_status"] == "error"
    assert "details" not in payload
    await peer.submit("echo")


class FickleError(JobError):
    """An error that changes as soon as its payload was read."""

    def payload(self) -> dict[str, Json]:
        """Return the payload, and spoil the details for the next call."""
        payload = super().payload()
        self.details = {"it": object()}
        return payload


async def test_an_error_that_changes_is_sent_as_it_was(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """An error is sent as it was when it was raised, even if it changes afterwards."""
    payload = await end_of(runtime, peer, raising(FickleError("x", {"it": 1})))
    assert payload["details"] == {"it": 1}


# -- what an agent may return


def _nested(depth: int) -> Json:
    value: Json = []
    for _ in range(depth - 1):
        value = [value]
    return value


def _circle() -> Json:
    value: list[Json] = []
    value.append(value)
    return value


@attrs.frozen
class Point:
    """An object that is not JSON and contains a secret."""

    secret: str = SECRET


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Point(),
        {"nan": float("nan")},
        [float("inf")],
        Decimal("NaN"),
        b"bytes",
        {1, 2},
        {1: "a key"},
        {Point(): "a key"},
        2**63,
        "\ud800",
        ["\udfff"],
        _nested(63),
        _nested(10_000),
        _circle(),
        "x" * 2**20,
        ["x" * 1000] * 1100,
    ],
    ids=range(17),
)
@pytest.mark.logs_error("agent=actor")
async def test_a_result_that_cannot_be_sent_is_a_failure(
    runtime: Runtime, peer: Peer, value: Json, autojump_clock: MockClock
) -> None:
    """A result that is not JSON, too deep or too large fails its job; the runtime goes on."""
    payload = await end_of(runtime, peer, returning(value))
    assert payload["code"] == "INTERNAL_ERROR"
    assert payload["final_status"] == "error"
    assert SECRET not in json.dumps(payload)
    await peer.submit("echo")


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        ((1, (2,)), [1, [2]]),
        (Decimal("5.10"), 5.1),
        (_nested(62), _nested(62)),
        ("x" * (2**20 - 1000), "x" * (2**20 - 1000)),
    ],
    ids=["tuples", "decimal", "deep", "large"],
)
@pytest.mark.spec("8.4-9")
async def test_a_result_up_to_the_bounds_arrives(
    runtime: Runtime, peer: Peer, value: Json, arrives: Json, autojump_clock: MockClock
) -> None:
    """Any JSON value within the bounds of a frame arrives as the inline result."""
    assert await play(runtime, peer, returning(value)) == arrives
