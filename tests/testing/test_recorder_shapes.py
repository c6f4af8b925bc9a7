"""The recorder, on frames that are none: their fields, and what stands in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.testing.frames import CODES, parse_frame
from tests.testing.wire import ERROR, TIME, Frame, Wire


def test_a_version_that_changes(wire: Wire) -> None:
    """The version of the welcome holds for the connection."""
    wire.refuses(wire.frame("session.pong", {"ping_nonce": "n"}, arcp="1"), "another arcp version")


@pytest.mark.parametrize("kind", ["session.hello", "session.bye", "job.submit", "job.unsubscribed"])
def test_a_type_that_no_runtime_sends(wire: Wire, kind: str) -> None:
    """Clients' messages, and inventions, do not come from a runtime."""
    wire.refuses(wire.frame(kind, {}), "does not send")


def _nulls(wire: Wire) -> Iterator[Frame]:
    yield wire.frame("session.pong", {"ping_nonce": "n"}, trace_id=None)
    yield wire.frame("session.error", ERROR | {"details": None})
    yield wire.frame("session.error", ERROR | {"job_id": None})
    yield wire.accepted("job_9", lease_constraints=None)
    yield wire.accepted("job_9", lease={"tool.call": [None]})
    yield wire.accepted("job_9", parent_job_id=None)
    yield wire.frame("session.jobs", {"request_id": "r", "jobs": [{"trace_id": None}]})
    yield wire.result(3, summary=None)
    yield wire.event(3, kind="status", phase="p", message=None)
    yield wire.event(3, kind="progress", current=1, total=None)
    yield wire.event(3, kind="metric", name="n", value=1, unit=None)
    yield wire.event(3, kind="tool_result", call_id="c", error=None)


def test_null_for_what_is_absent(running: Wire) -> None:
    """Optional fields are left out, never null, at any depth."""
    for frame in _nulls(running):
        with pytest.raises(AssertionError, match=r"null|no object"):
            running.see(frame)


def test_null_where_it_means_something(running: Wire) -> None:
    """The few nulls of the protocol pass, and so does everything in free-form JSON."""
    jobs = [{"job_id": "job_1", "parent_job_id": None, "created_at": TIME}]
    running.see(
        running.frame("session.jobs", {"request_id": "r", "jobs": jobs, "next_cursor": None}),
        running.subscribed("job_2"),
        running.frame("session.error", ERROR | {"details": {"why": None}}),
        running.event(3, kind="tool_call", call_id="c", tool="t", args={"x": None}),
        running.event(4, kind="tool_result", call_id="c", result=None),
        running.event(5, kind="x-vendor.acme.thing", x=None, expires_at="tomorrow"),
        running.result(6, result={"x": [None], "ts": 7}),
    )


def _errors(wire: Wire) -> Iterator[Frame]:
    wrong: list[Frame] = [
        {"code": "NOT_FOUND"},
        {"code": None},
        {"code": "TIMEOUT", "retryable": "yes"},
        {"code": "TIMEOUT", "retryable": 1},
        {"retryable": None},
        {"message": ""},
        {"retryable": False},  # of INTERNAL_ERROR, which is always retryable
        {"code": "LEASE_EXPIRED"},  # never retryable (§12)
        {"code": "BUDGET_EXHAUSTED"},
    ]
    for change in wrong:
        yield wire.frame("session.error", ERROR | change)
        yield wire.error(3, **change)
        yield wire.event(3, kind="tool_result", call_id="c", error=ERROR | change)
    for field in ERROR:
        yield wire.frame("session.error", {k: v for k, v in ERROR.items() if k != field})


def test_errors_beyond_the_taxonomy(running: Wire) -> None:
    """Codes are those of §12, with a message and a boolean, wherever an error stands."""
    for frame in _errors(running):
        with pytest.raises(AssertionError, match=r"code|message|retryable|null"):
            running.see(frame)


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_may_be_seen(wire: Wire, code: str) -> None:
    """All fifteen codes pass, each with the retryable it must have, if it must."""
    error = {"code": code, "message": "m", "retryable": code == "INTERNAL_ERROR"}
    wire.see(wire.frame("session.error", error))
    assert len(CODES) == 15


def test_final_statuses(running: Wire) -> None:
    """A terminal names one of its own statuses."""
    for frame in (running.result(3, final_status="error"), running.error(3, final_status="failed")):
        running.refuses(frame, "final_status")


def test_a_result_is_inline_or_streamed(running: Wire) -> None:
    """A result that refers to chunks carries no value beside them (§8.4)."""
    running.refuses(running.result(3, result_id="res_1"), "both result and result_id")


@pytest.mark.parametrize(
    "time", ["2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00", "2026-01-01", 0, None]
)
def test_times_are_utc(running: Wire, time: Any) -> None:
    """A timestamp ends in Z, wherever it stands."""
    late = running.event(3)
    late["payload"]["ts"] = time
    for frame in (
        late,
        running.result(3, completed_at=time),
        running.accepted("job_2", lease_constraints={"expires_at": time}),
        running.frame("session.pong", {"ping_nonce": "n", "received_at": time}),
        running.frame("session.jobs", {"jobs": [{"created_at": time}]}),
    ):
        running.refuses(frame, "no time in UTC")


@pytest.mark.parametrize(
    "text", ["", "nope", "[]", '{"a":1,"a":2}', '{"a":NaN}', '{"a":Infinity}', b"{}"]
)
def test_what_is_no_frame(text: str | bytes) -> None:
    """What a client cannot read in one way only is refused before it is looked at."""
    with pytest.raises(AssertionError):
        parse_frame(text)


@given(st.data())
def test_any_single_fault_in_the_numbers_is_found(data: st.DataObject) -> None:
    """Whatever is dropped from, repeated in or swapped in a stream, the recorder notices."""
    wire = Wire()
    frames = [wire.event(number) for number in range(1, data.draw(st.integers(2, 20)) + 1)]
    # The last frame may be lost without anyone being able to tell.
    at = data.draw(st.integers(0, len(frames) - 2))
    match data.draw(st.sampled_from(["drop", "repeat", "swap"])):
        case "drop":
            del frames[at]
        case "repeat":
            frames.insert(at, frames[at])
        case _:
            frames[at], frames[at + 1] = frames[at + 1], frames[at]
    wire.see(wire.welcome(), wire.accepted())
    with pytest.raises(AssertionError):
        wire.see(*frames)
