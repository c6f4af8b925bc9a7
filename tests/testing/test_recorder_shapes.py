"""The recorder refuses malformed frames: their fields, and the values of these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.testing.frames import CODES, parse_frame
from tests.testing.wire import ERROR, TIME, Frame, Wire


def test_a_version_that_changes(wire: Wire) -> None:
    """The recorder refuses another version than that of the connection's welcome."""
    wire.refuses(wire.frame("session.pong", {"ping_nonce": "n"}, arcp="1"), "another arcp version")


@pytest.mark.parametrize("kind", ["session.hello", "session.bye", "job.submit", "job.unsubscribed"])
def test_a_type_that_no_runtime_sends(wire: Wire, kind: str) -> None:
    """The recorder refuses types that only clients send, and unknown ones."""
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
    """The recorder refuses null for an optional field, at any depth."""
    for frame in _nulls(running):
        with pytest.raises(AssertionError, match=r"null|no object"):
            running.see(frame)


def test_null_where_it_means_something(running: Wire) -> None:
    """The recorder accepts the few nulls of the protocol, and any value in free-form JSON."""
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
        {"retryable": False},  # INTERNAL_ERROR is always retryable
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
    """The recorder refuses errors whose code, message or retryable is not as in §12."""
    for frame in _errors(running):
        with pytest.raises(AssertionError, match=r"code|message|retryable|null"):
            running.see(frame)


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_may_be_seen(wire: Wire, code: str) -> None:
    """The recorder accepts each of the fifteen codes of §12."""
    error = {"code": code, "message": "m", "retryable": code == "INTERNAL_ERROR"}
    wire.see(wire.frame("session.error", error))
    assert len(CODES) == 15


def test_final_statuses(running: Wire) -> None:
    """The recorder refuses a terminal with a status of the other type of terminal."""
    for frame in (running.result(3, final_status="error"), running.error(3, final_status="failed")):
        running.refuses(frame, "final_status")


def test_a_result_is_inline_or_streamed(running: Wire) -> None:
    """The recorder refuses a result that is both inline and streamed (§8.4)."""
    running.refuses(running.result(3, result_id="res_1"), "both result and result_id")


@pytest.mark.parametrize(
    "time", ["2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00", "2026-01-01", 0, None]
)
def test_times_are_utc(running: Wire, time: Any) -> None:
    """The recorder refuses a timestamp that does not end in Z, in any place."""
    late = running.event(3)
    late["payload"]["ts"] = time
    for frame in (
        late,
        running.result(3, completed_at=time),
        running.accepted("job_2", lease_constraints={"expires_at": time}),
        running.frame("session.pong", {"ping_nonce": "n", "received_at": time}),
        running.frame("session.jobs", {"jobs": [{"created_at": time}]}),
    ):
        running.refuses(frame, "is not a time in UTC")


@pytest.mark.parametrize(
    "text", ["", "nope", "[]", '{"a":1,"a":2}', '{"a":NaN}', '{"a":Infinity}', b"{}"]
)
def test_what_is_no_frame(text: str | bytes) -> None:
    """`parse_frame` refuses text that is not JSON, repeats a field, or is binary."""
    with pytest.raises(AssertionError):
        parse_frame(text)


@given(st.data())
def test_any_single_fault_in_the_numbers_is_found(data: st.DataObject) -> None:
    """The recorder finds each frame that is dropped, repeated or swapped in a stream."""
    wire = Wire()
    frames = [wire.event(number) for number in range(1, data.draw(st.integers(2, 20)) + 1)]
    # Whether the last frame is lost cannot be known.
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
