"""The recorder bites: each promise of the wire, broken once."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.testing import WireRecorder
from arcp_trio.testing.frames import CODES, parse_frame
from arcp_trio.testing.recorder import ConnectionRecord

Frame = dict[str, Any]

TIME = "2026-01-01T00:00:00.000Z"
ERROR: Frame = {"code": "INTERNAL_ERROR", "message": "it broke", "retryable": True}


class _Wire:
    """Makes right frames, and feeds frames to a connection of a recorder."""

    def __init__(self, recorder: WireRecorder | None = None, session: str = "sess_1") -> None:
        self.recorder = recorder or WireRecorder()
        self.session = session
        self.record = self.recorder.connection()
        self.ids = iter(range(10_000))
        self.token: Iterator[str] = (f"rt_{n}" for n in range(100))

    def reconnect(self, last_event_seq: int) -> None:
        """Go on with the same session on another connection."""
        self.record = self.recorder.connection()
        self.record.resumed(last_event_seq)
        self.see(self.welcome())

    def frame(self, kind: str, payload: Frame, **envelope: Any) -> Frame:
        return {
            "arcp": "1.1",
            "id": f"{self.session}-{next(self.ids)}",
            "type": kind,
            "session_id": self.session,
            **envelope,
            "payload": payload,
        }

    def welcome(self) -> Frame:
        payload = {"resume_token": next(self.token), "accepted_at": TIME}
        return self.frame("session.welcome", payload)

    def accepted(self, job: str = "job_1", **payload: Any) -> Frame:
        payload = {"job_id": job, "agent": "a@1", "request_id": "r1", "accepted_at": TIME} | payload
        return self.frame("job.accepted", payload, job_id=job)

    def event(self, number: int, job: str = "job_1", kind: str = "log", **body: Any) -> Frame:
        payload = {"kind": kind, "ts": TIME, "body": body}
        return self.frame("job.event", payload, job_id=job, event_seq=number)

    def result(self, number: int, job: str = "job_1", **payload: Any) -> Frame:
        payload = {"final_status": "success", "result": None, "completed_at": TIME} | payload
        return self.frame("job.result", payload, job_id=job, event_seq=number)

    def error(self, number: int, job: str = "job_1", **payload: Any) -> Frame:
        payload = {"final_status": "error", **ERROR, "completed_at": TIME} | payload
        return self.frame("job.error", payload, job_id=job, event_seq=number)

    def subscribed(self, job: str = "job_1") -> Frame:
        payload = {"job_id": job, "request_id": "r2", "parent_job_id": None}
        return self.frame("job.subscribed", payload, job_id=job)

    def see(self, *frames: Frame) -> None:
        for frame in frames:
            self.record.saw(copy.deepcopy(frame))

    def refuses(self, frame: Frame, why: str) -> None:
        """Show that the recorder refuses a frame, for this reason, and names it."""
        with pytest.raises(AssertionError, match=why) as caught:
            self.see(frame)
        assert json.dumps(frame.get("id"), separators=(",", ":")) in str(caught.value)


@pytest.fixture
def wire() -> _Wire:
    """Give a session that has been welcomed and has seen nothing else."""
    wire = _Wire()
    wire.see(wire.welcome())
    return wire


@pytest.fixture
def running(wire: _Wire) -> _Wire:
    """Give a session with one job and its first two events."""
    wire.see(wire.accepted(), wire.event(1), wire.event(2))
    return wire


def test_a_right_conversation_passes_and_can_be_asked_about(running: _Wire) -> None:
    """The recorder keeps a job's events, its terminal and the highest number."""
    assert running.recorder.terminal("job_1") is None
    last = running.result(3)
    running.see(last)
    assert [f["event_seq"] for f in running.recorder.events("job_1")] == [1, 2]
    assert running.recorder.terminal("job_1") == last
    assert running.recorder.highest("sess_1") == 3


def test_nothing_is_known_of_the_unknown() -> None:
    """Asking about what was never seen gives nothing, and no error."""
    recorder = WireRecorder()
    assert recorder.highest("sess_9") == 0
    assert recorder.events("job_9") == []
    assert recorder.terminal("job_9") is None


def test_a_job_seen_by_two_sessions_has_to_be_asked_about_by_session() -> None:
    """Each session has the job in numbers of its own, so the question needs the session."""
    recorder = WireRecorder()
    submitter, subscriber = _Wire(recorder, "sess_1"), _Wire(recorder, "sess_2")
    subscriber.token = iter(["rt_other"])
    submitter.see(submitter.welcome(), submitter.accepted("job_0"), submitter.event(1, "job_0"))
    submitter.see(submitter.accepted(), submitter.event(2))
    subscriber.see(subscriber.welcome(), subscriber.subscribed(), subscriber.event(1))
    with pytest.raises(ValueError, match="2 sessions"):
        recorder.events("job_1")
    assert [f["event_seq"] for f in recorder.events("job_1", session_id="sess_1")] == [2]
    assert [f["event_seq"] for f in recorder.events("job_1", session_id="sess_2")] == [1]
    assert recorder.terminal("job_1", session_id="sess_2") is None


@pytest.mark.parametrize("number", [1, 2, 4, 100])
def test_gap_repeat_and_inversion(running: _Wire, number: int) -> None:
    """After 1 and 2 only 3 is right."""
    running.refuses(running.event(number), f"event_seq {number} where 3 is due")


@pytest.mark.parametrize("number", [0, -1, True, 1.0, "1", None])
def test_a_number_is_a_positive_integer(wire: _Wire, number: Any) -> None:
    """Only JSON integers from 1 up are numbers."""
    wire.see(wire.accepted())
    wire.refuses(wire.event(number), "event_seq")


@pytest.mark.parametrize("kind", ["job.event", "job.result", "job.error"])
def test_what_must_be_numbered_without_a_number(running: _Wire, kind: str) -> None:
    """All frames of a job's stream carry a number and the job's id."""
    right = {
        "job.event": running.event(3),
        "job.result": running.result(3),
        "job.error": running.error(3),
    }[kind]
    for field in ("event_seq", "job_id"):
        running.refuses({k: v for k, v in right.items() if k != field}, field)


@pytest.mark.parametrize(
    "kind", ["session.pong", "session.ping", "session.error", "job.accepted", "job.cancelled"]
)
def test_what_must_not_be_numbered_with_a_number(wire: _Wire, kind: str) -> None:
    """Control frames take no place in the numbers."""
    wire.refuses(wire.frame(kind, {"job_id": "job_1"}, event_seq=1), "carries an event_seq")


def test_an_envelope_and_a_payload_of_different_jobs(wire: _Wire) -> None:
    """Where the job stands twice it is the same one."""
    wire.refuses(wire.accepted() | {"job_id": "job_2"}, "job_id differs")


@pytest.mark.parametrize("kind", [None, "", 7])
def test_an_event_without_a_kind(running: _Wire, kind: Any) -> None:
    """The kind says how to read the body."""
    frame = running.event(3)
    frame["payload"]["kind"] = kind
    running.refuses(frame, "without kind")


def test_events_before_the_acceptance(wire: _Wire) -> None:
    """A client must know a job before it hears of its events."""
    wire.refuses(wire.event(1), "before its job.accepted")


@pytest.mark.parametrize("kind", ["job.event", "job.result", "job.error", "job.cancelled"])
def test_after_the_terminal_comes_nothing(running: _Wire, kind: str) -> None:
    """A second terminal, an event or a cancellation after the terminal is refused."""
    running.see(running.result(3))
    late = {
        "job.event": running.event(4),
        "job.result": running.result(4),
        "job.error": running.error(4),
        "job.cancelled": running.frame("job.cancelled", {"job_id": "job_1"}, job_id="job_1"),
    }[kind]
    running.refuses(late, "after the job's terminal")


def test_the_terminal_of_one_job_does_not_end_another(running: _Wire) -> None:
    """Jobs of one session share numbers and nothing else."""
    running.see(running.accepted("job_2"), running.result(3), running.event(4, "job_2"))
    assert running.recorder.terminal("job_2") is None


def test_an_acceptance_may_be_repeated_but_not_changed(running: _Wire) -> None:
    """A submission repeated under its key gets the same payload for another request (§7.2)."""
    running.see(running.result(3), running.accepted(request_id="r9"))
    running.refuses(running.accepted(agent="a@2"), "second, different job.accepted")


def test_a_result_of_nothing_that_was_called(running: _Wire) -> None:
    """A tool result is about a call or a delegation of the same job."""
    running.see(running.event(3, kind="tool_call", tool="t", call_id="c1"))
    running.see(running.event(4, kind="delegate", delegate_id="d1", agent="a"))
    running.see(running.event(5, kind="tool_result", call_id="c1", result=None))
    running.see(running.event(6, kind="tool_result", call_id="d1", error=ERROR))
    running.see(running.accepted("job_2"))
    why = "nothing that was called"
    running.refuses(running.event(7, "job_2", "tool_result", call_id="c1", result=None), why)


def test_an_observer_need_not_have_seen_the_call(wire: _Wire) -> None:
    """Who comes in the middle of a job sees results of calls before."""
    wire.see(wire.subscribed(), wire.event(1, kind="tool_result", call_id="c1", result=None))


def test_a_child_comes_behind_its_delegation(running: _Wire) -> None:
    """It is accepted once its parent has delegated to it, by the delegation's id."""
    running.see(running.event(3, kind="delegate", delegate_id="d1", agent="a"))
    child = running.accepted("job_2", parent_job_id="job_1", delegate_id="d2")
    running.refuses(child, "did not delegate")


def test_a_child_ends_before_its_parent(running: _Wire) -> None:
    """Neither its terminal nor its acceptance comes behind its parent's terminal."""
    running.see(running.event(3, kind="delegate", delegate_id="d1", agent="a"))
    running.see(running.event(4, kind="delegate", delegate_id="d2", agent="a"))
    running.see(running.accepted("job_2", parent_job_id="job_1", delegate_id="d1"))
    running.see(running.event(5, "job_2"))
    running.refuses(running.result(6), "before its child's")
    running = _Wire()
    running.see(running.welcome(), running.accepted())
    running.see(running.event(1, kind="delegate", delegate_id="d1", agent="a"), running.result(2))
    late = running.accepted("job_2", parent_job_id="job_1", delegate_id="d1")
    running.refuses(late, "a job that has ended")


def test_a_subscription_may_be_repeated(wire: _Wire) -> None:
    """Subscribing again replays a job that is not the session's own, also past its end."""
    for first in (1, 3):
        wire.see(wire.subscribed(), wire.event(first), wire.result(first + 1))
    assert [f["event_seq"] for f in wire.recorder.events("job_1")] == [1, 3]


def test_subscribing_to_an_own_job_repeats_nothing(running: _Wire) -> None:
    """The submitter's stream has the job already; a subscription is only acknowledged."""
    running.see(running.result(3), running.subscribed())
    running.refuses(running.event(4), "after the job's terminal")


def test_a_frame_before_the_welcome() -> None:
    """The welcome, or a refusal, is the first frame of a connection."""
    wire = _Wire()
    wire.refuses(wire.frame("session.pong", {"ping_nonce": "n"}), "before session.welcome")


def test_a_second_welcome(wire: _Wire) -> None:
    """A connection welcomes its session once."""
    wire.refuses(wire.welcome(), "second session.welcome")


def test_a_refused_handshake_ends_the_conversation() -> None:
    """After a refusal nothing follows."""
    wire = _Wire()
    wire.see(wire.frame("session.error", ERROR))
    wire.refuses(wire.frame("session.error", ERROR), "after the end")


def test_after_closed_comes_nothing(wire: _Wire) -> None:
    """`session.closed` is the last frame."""
    wire.see(wire.frame("session.closed", {}))
    wire.refuses(wire.frame("session.pong", {"ping_nonce": "n"}), "after the end")


def test_a_session_does_not_come_back_by_itself(running: _Wire) -> None:
    """A known session is welcomed again only to a client that asked to resume it."""
    running.record = running.recorder.connection()
    running.refuses(running.welcome(), "without a resume")


def test_the_token_rotates(wire: _Wire) -> None:
    """Every welcome brings another resume token (§6.3)."""
    wire.record = wire.recorder.connection()
    wire.record.resumed(0)
    wire.token = iter(["rt_0"])
    wire.refuses(wire.welcome(), "did not rotate")


def test_a_resume_replays_identical_frames_and_goes_on(wire: _Wire) -> None:
    """After a resume from k comes k+1, as it was; then what is new."""
    accepted, one, two = wire.accepted(), wire.event(1), wire.event(2)
    wire.see(accepted, one, two)
    wire.reconnect(0)
    wire.see(accepted, one, two, wire.event(3), wire.result(4))
    wire.reconnect(4)
    assert [f["event_seq"] for f in wire.recorder.events("job_1")] == [1, 2, 3]
    assert wire.recorder.highest("sess_1") == 4


@pytest.mark.parametrize("number", [1, 3])
def test_a_resume_goes_on_after_the_last_number(running: _Wire, number: int) -> None:
    """A replay begins exactly after the number that the client named."""
    running.reconnect(1)
    running.refuses(running.event(number), f"event_seq {number} where 2 is due")


def test_a_replayed_number_with_another_frame(running: _Wire) -> None:
    """A number keeps its frame: another id under it is refused."""
    running.reconnect(1)
    running.refuses(running.event(2), "event_seq 2 was another frame before")


@pytest.mark.parametrize("body", [{"message": "other"}, {"level": 1}, {"level": 1.0}])
def test_a_replayed_frame_with_another_content(wire: _Wire, body: Frame) -> None:
    """A replay is the same to the letter; what Python holds equal is not enough."""
    frame = wire.event(1, level=True)
    wire.see(wire.accepted(), frame)
    wire.reconnect(0)
    frame = copy.deepcopy(frame)
    frame["payload"]["body"] = body
    wire.refuses(frame, "an id that was another frame before")


def test_a_replayed_terminal_passes(running: _Wire) -> None:
    """The terminal, its cancellation and the acceptance may come again after a resume."""
    cancelled = running.frame("job.cancelled", {"job_id": "job_1"}, job_id="job_1")
    last = running.error(3, final_status="cancelled", code="CANCELLED", retryable=False)
    running.see(cancelled, last)
    running.reconnect(2)
    running.see(cancelled, last)
    running.refuses(running.event(4), "after the job's terminal")


def test_an_id_twice_on_one_connection(running: _Wire) -> None:
    """Without a reconnect even an identical frame is a repeat."""
    ping = running.frame("session.ping", {"nonce": "n", "sent_at": TIME})
    running.see(ping)
    running.refuses(ping, "an id twice")


def test_another_session_on_the_same_connection(wire: _Wire) -> None:
    """A connection carries one session."""
    pong = wire.frame("session.pong", {"ping_nonce": "n"}, session_id="sess_2")
    wire.refuses(pong, "another session")


@pytest.mark.parametrize("field", ["arcp", "id", "type", "session_id", "payload"])
@pytest.mark.parametrize("value", ["missing", None, 7, ""])
def test_an_envelope_without_its_fields(wire: _Wire, field: str, value: Any) -> None:
    """Every frame has version, id, type, session and payload."""
    frame = wire.frame("session.pong", {"ping_nonce": "n"})
    if value == "missing":
        del frame[field]
    else:
        frame[field] = value
    with pytest.raises(AssertionError, match=field):
        wire.see(frame)


def test_a_version_that_changes(wire: _Wire) -> None:
    """The version of the welcome holds for the connection."""
    wire.refuses(wire.frame("session.pong", {"ping_nonce": "n"}, arcp="1"), "another arcp version")


@pytest.mark.parametrize("kind", ["session.hello", "session.bye", "job.submit", "job.unsubscribed"])
def test_a_type_that_no_runtime_sends(wire: _Wire, kind: str) -> None:
    """Clients' messages, and inventions, do not come from a runtime."""
    wire.refuses(wire.frame(kind, {}), "does not send")


def _nulls(wire: _Wire) -> Iterator[Frame]:
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


def test_null_for_what_is_absent(running: _Wire) -> None:
    """Optional fields are left out, never null, at any depth."""
    for frame in _nulls(running):
        with pytest.raises(AssertionError, match=r"null|no object"):
            running.see(frame)


def test_null_where_it_means_something(running: _Wire) -> None:
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


def _errors(wire: _Wire) -> Iterator[Frame]:
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


def test_errors_beyond_the_taxonomy(running: _Wire) -> None:
    """Codes are those of §12, with a message and a boolean, wherever an error stands."""
    for frame in _errors(running):
        with pytest.raises(AssertionError, match=r"code|message|retryable|null"):
            running.see(frame)


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_may_be_seen(wire: _Wire, code: str) -> None:
    """All fifteen codes pass, each with the retryable it must have, if it must."""
    error = {"code": code, "message": "m", "retryable": code == "INTERNAL_ERROR"}
    wire.see(wire.frame("session.error", error))
    assert len(CODES) == 15


def test_final_statuses(running: _Wire) -> None:
    """A terminal names one of its own statuses."""
    for frame in (running.result(3, final_status="error"), running.error(3, final_status="failed")):
        running.refuses(frame, "final_status")


def test_a_result_is_inline_or_streamed(running: _Wire) -> None:
    """A result that refers to chunks carries no value beside them (§8.4)."""
    running.refuses(running.result(3, result_id="res_1"), "both result and result_id")


@pytest.mark.parametrize(
    "time", ["2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00", "2026-01-01", 0, None]
)
def test_times_are_utc(running: _Wire, time: Any) -> None:
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
    wire = _Wire()
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


def test_each_connection_has_its_own_place(running: _Wire) -> None:
    """What an old connection still delivers is checked as its own, also after a take-over."""
    old: ConnectionRecord = running.record
    accepted = running.accepted("job_2")
    three, four = running.event(3), running.event(4)
    running.reconnect(2)
    running.see(three, four)
    old.saw(three)
    with pytest.raises(AssertionError, match="event_seq 5 where 4 is due"):
        old.saw(running.event(5))
    running.see(accepted)


# -- subscriptions


@pytest.fixture
def observing(wire: _Wire) -> _Wire:
    """Give a session that observes a job, and has seen its first event."""
    wire.see(wire.subscribed(), wire.event(1))
    return wire


def _ask(wire: _Wire, kind: str, request: str, **payload: Any) -> None:
    wire.record.sent({"type": kind, "id": request, "payload": payload})


def _answer(wire: _Wire, request: str) -> Frame:
    return wire.frame("session.jobs", {"request_id": request, "jobs": [], "next_cursor": None})


def test_after_an_unsubscribe_comes_only_what_was_on_its_way(observing: _Wire) -> None:
    """The answer to anything that was asked behind it stands behind the last event, too."""
    _ask(observing, "session.list_jobs", "r7")
    _ask(observing, "job.unsubscribe", "r8", job_id="job_1")
    _ask(observing, "session.list_jobs", "r9")
    observing.see(_answer(observing, "r7"), observing.event(2), _answer(observing, "r9"))
    observing.refuses(observing.event(3), "not observed any more")


def test_an_unsubscribe_is_undone_by_a_subscription(observing: _Wire) -> None:
    """Behind the new answer the events are right again, also those that were seen before."""
    _ask(observing, "job.unsubscribe", "r8", job_id="job_1")
    _ask(observing, "job.subscribe", "r2", job_id="job_1")
    _ask(observing, "session.list_jobs", "r9")
    again = observing.event(2)
    observing.see(again, observing.subscribed(), _answer(observing, "r9"))
    observing.see({**again, "event_seq": 3})
    first, second = observing.recorder.subscriptions("job_1", session_id="sess_1")
    assert [f["event_seq"] for f in first.frames] == [1, 2]
    assert [f["event_seq"] for f in second.frames] == [3]


def test_an_event_does_not_come_twice_in_one_subscription(observing: _Wire) -> None:
    """The same event under another number is right only where it was asked for again."""
    again = observing.event(2)
    observing.see(again)
    observing.refuses({**again, "event_seq": 3}, "an id that was another frame before")


def test_a_subscription_that_is_told_to_have_ended_brings_nothing_more(observing: _Wire) -> None:
    """RESUME_WINDOW_EXPIRED for a job is the end of its events."""
    gone = {"code": "RESUME_WINDOW_EXPIRED", "message": "gone", "retryable": False}
    observing.see(observing.frame("session.error", {**gone, "job_id": "job_1"}))
    observing.refuses(observing.event(2), "not observed any more")


def test_an_unsubscribe_from_ones_own_job_ends_nothing(running: _Wire) -> None:
    """What was submitted keeps coming."""
    _ask(running, "job.unsubscribe", "r8", job_id="job_1")
    _ask(running, "session.list_jobs", "r9")
    running.see(_answer(running, "r9"), running.event(3))
