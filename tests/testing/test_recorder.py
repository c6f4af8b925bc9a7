"""The recorder finds each broken promise of the protocol."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from arcp_trio.testing import WireRecorder
from arcp_trio.testing.recorder import ConnectionRecord
from tests.testing.wire import ERROR, TIME, Frame, Wire


def test_a_right_conversation_passes_and_can_be_asked_about(running: Wire) -> None:
    """The recorder returns a job's events, its terminal and the highest number of a session."""
    assert running.recorder.terminal("job_1") is None
    last = running.result(3)
    running.see(last)
    assert [f["event_seq"] for f in running.recorder.events("job_1")] == [1, 2]
    assert running.recorder.terminal("job_1") == last
    assert running.recorder.highest("sess_1") == 3


def test_nothing_is_known_of_the_unknown() -> None:
    """The recorder has no error for jobs and sessions that it has not seen."""
    recorder = WireRecorder()
    assert recorder.highest("sess_9") == 0
    assert recorder.events("job_9") == []
    assert recorder.terminal("job_9") is None


def test_a_job_seen_by_two_sessions_has_to_be_asked_about_by_session() -> None:
    """A job that two sessions saw has different numbers in each, so the session must be given."""
    recorder = WireRecorder()
    submitter, subscriber = Wire(recorder, "sess_1"), Wire(recorder, "sess_2")
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
def test_gap_repeat_and_inversion(running: Wire, number: int) -> None:
    """After the numbers 1 and 2 the recorder accepts only 3."""
    running.refuses(running.event(number), f"event_seq {number} where 3 is due")


@pytest.mark.parametrize("number", [0, -1, True, 1.0, "1", None])
def test_a_number_is_a_positive_integer(wire: Wire, number: Any) -> None:
    """The recorder accepts only JSON integers from 1 up as numbers."""
    wire.see(wire.accepted())
    wire.refuses(wire.event(number), "event_seq")


@pytest.mark.parametrize("kind", ["job.event", "job.result", "job.error"])
def test_what_must_be_numbered_without_a_number(running: Wire, kind: str) -> None:
    """The recorder refuses a numbered frame without its number or its job's id."""
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
def test_what_must_not_be_numbered_with_a_number(wire: Wire, kind: str) -> None:
    """The recorder refuses a number in a control frame."""
    wire.refuses(wire.frame(kind, {"job_id": "job_1"}, event_seq=1), "carries an event_seq")


def test_an_envelope_and_a_payload_of_different_jobs(wire: Wire) -> None:
    """The recorder refuses a payload with another job's id than the envelope's."""
    wire.refuses(wire.accepted() | {"job_id": "job_2"}, "job_id differs")


@pytest.mark.parametrize("kind", [None, "", 7])
def test_an_event_without_a_kind(running: Wire, kind: Any) -> None:
    """The recorder refuses an event without a kind."""
    frame = running.event(3)
    frame["payload"]["kind"] = kind
    running.refuses(frame, "without kind")


def test_events_before_the_acceptance(wire: Wire) -> None:
    """The recorder refuses an event of a job that was not accepted before."""
    wire.refuses(wire.event(1), "before its job.accepted")


@pytest.mark.parametrize("kind", ["job.event", "job.result", "job.error", "job.cancelled"])
def test_after_the_terminal_comes_nothing(running: Wire, kind: str) -> None:
    """The recorder refuses a second terminal, an event and a cancellation after the terminal."""
    running.see(running.result(3))
    late = {
        "job.event": running.event(4),
        "job.result": running.result(4),
        "job.error": running.error(4),
        "job.cancelled": running.frame("job.cancelled", {"job_id": "job_1"}, job_id="job_1"),
    }[kind]
    running.refuses(late, "after the job's terminal")


def test_the_terminal_of_one_job_does_not_end_another(running: Wire) -> None:
    """The end of one job leaves the other jobs of its session running."""
    running.see(running.accepted("job_2"), running.result(3), running.event(4, "job_2"))
    assert running.recorder.terminal("job_2") is None


def test_an_acceptance_may_be_repeated_but_not_changed(running: Wire) -> None:
    """An acceptance may be repeated for another request, with the same payload (§7.2)."""
    running.see(running.result(3), running.accepted(request_id="r9"))
    running.refuses(running.accepted(agent="a@2"), "second, different job.accepted")


def test_a_result_of_nothing_that_was_called(running: Wire) -> None:
    """The recorder refuses a tool result without a call or delegation of the same job."""
    running.see(running.event(3, kind="tool_call", tool="t", call_id="c1"))
    running.see(running.event(4, kind="delegate", delegate_id="d1", agent="a"))
    running.see(running.event(5, kind="tool_result", call_id="c1", result=None))
    running.see(running.event(6, kind="tool_result", call_id="d1", error=ERROR))
    running.see(running.accepted("job_2"))
    why = "without its tool_call"
    running.refuses(running.event(7, "job_2", "tool_result", call_id="c1", result=None), why)


def test_an_observer_need_not_have_seen_the_call(wire: Wire) -> None:
    """A subscriber may receive results of calls that were made before it subscribed."""
    wire.see(wire.subscribed(), wire.event(1, kind="tool_result", call_id="c1", result=None))


def test_a_child_comes_behind_its_delegation(running: Wire) -> None:
    """The recorder refuses a child whose delegation its parent did not announce."""
    running.see(running.event(3, kind="delegate", delegate_id="d1", agent="a"))
    child = running.accepted("job_2", parent_job_id="job_1", delegate_id="d2")
    running.refuses(child, "without a delegate event")


def test_a_child_ends_before_its_parent(running: Wire) -> None:
    """The recorder refuses a parent's terminal before its child's, and a child after it."""
    running.see(running.event(3, kind="delegate", delegate_id="d1", agent="a"))
    running.see(running.event(4, kind="delegate", delegate_id="d2", agent="a"))
    running.see(running.accepted("job_2", parent_job_id="job_1", delegate_id="d1"))
    running.see(running.event(5, "job_2"))
    running.refuses(running.result(6), "before its child's")
    running = Wire()
    running.see(running.welcome(), running.accepted())
    running.see(running.event(1, kind="delegate", delegate_id="d1", agent="a"), running.result(2))
    late = running.accepted("job_2", parent_job_id="job_1", delegate_id="d1")
    running.refuses(late, "a job that has ended")


def test_a_subscription_may_be_repeated(wire: Wire) -> None:
    """A second subscription to another session's job may replay the job, past its end as well."""
    for first in (1, 3):
        wire.see(wire.subscribed(), wire.event(first), wire.result(first + 1))
    assert [f["event_seq"] for f in wire.recorder.events("job_1")] == [1, 3]


def test_subscribing_to_an_own_job_repeats_what_was_asked_for(running: Wire) -> None:
    """A subscription to the session's own job repeats it if the answer says so, and only then."""
    running.see(running.result(3), running.subscribed())
    running.refuses(running.event(4), "after the job's terminal")
    running = Wire()
    event, end = running.event(1), running.result(2)
    running.see(running.welcome(), running.accepted(), event, end)
    running.see(running.subscribed(replayed=True), event | {"event_seq": 3})
    assert running.recorder.events("job_1") == [event]
    running.see(end | {"event_seq": 4})
    running.refuses(running.event(5), "after the job's terminal")
    assert running.recorder.terminal("job_1") == end


def test_a_frame_before_the_welcome() -> None:
    """The first frame of a connection must be a welcome or a refusal."""
    wire = Wire()
    wire.refuses(wire.frame("session.pong", {"ping_nonce": "n"}), "before session.welcome")


def test_a_second_welcome(wire: Wire) -> None:
    """The recorder refuses a second welcome on one connection."""
    wire.refuses(wire.welcome(), "second session.welcome")


def test_a_refused_handshake_ends_the_conversation() -> None:
    """The recorder refuses any frame after a refused handshake."""
    wire = Wire()
    wire.see(wire.frame("session.error", ERROR))
    wire.refuses(wire.frame("session.error", ERROR), "after the last one")


def test_after_closed_comes_nothing(wire: Wire) -> None:
    """The recorder refuses any frame after `session.closed`."""
    wire.see(wire.frame("session.closed", {}))
    wire.refuses(wire.frame("session.pong", {"ping_nonce": "n"}), "after the last one")


def test_a_session_does_not_come_back_by_itself(running: Wire) -> None:
    """The recorder refuses a known session on a connection that did not ask to resume it."""
    running.record = running.recorder.connection()
    running.refuses(running.welcome(), "without a resume")


def test_the_token_rotates(wire: Wire) -> None:
    """The recorder refuses a welcome with a resume token that was issued before (§6.3)."""
    wire.record = wire.recorder.connection()
    wire.record.resumed(0)
    wire.token = iter(["rt_0"])
    wire.refuses(wire.welcome(), "did not rotate")


def test_a_resume_replays_identical_frames_and_goes_on(wire: Wire) -> None:
    """A resume replays the same frames from the number after the client's, and new ones follow."""
    accepted, one, two = wire.accepted(), wire.event(1), wire.event(2)
    wire.see(accepted, one, two)
    wire.reconnect(0)
    wire.see(accepted, one, two, wire.event(3), wire.result(4))
    wire.reconnect(4)
    assert [f["event_seq"] for f in wire.recorder.events("job_1")] == [1, 2, 3]
    assert wire.recorder.highest("sess_1") == 4


@pytest.mark.parametrize("number", [1, 3])
def test_a_resume_goes_on_after_the_last_number(running: Wire, number: int) -> None:
    """The recorder refuses a replay that does not begin right after the client's number."""
    running.reconnect(1)
    running.refuses(running.event(number), f"event_seq {number} where 2 is due")


def test_a_replayed_number_with_another_frame(running: Wire) -> None:
    """The recorder refuses another frame with the number of an earlier one."""
    running.reconnect(1)
    running.refuses(running.event(2), "event_seq 2 was another frame before")


@pytest.mark.parametrize("body", [{"message": "other"}, {"level": 1}, {"level": 1.0}])
def test_a_replayed_frame_with_another_content(wire: Wire, body: Frame) -> None:
    """The recorder refuses a replay that differs, even in values that are equal in Python."""
    frame = wire.event(1, level=True)
    wire.see(wire.accepted(), frame)
    wire.reconnect(0)
    frame = copy.deepcopy(frame)
    frame["payload"]["body"] = body
    wire.refuses(frame, "an id that was another frame before")


def test_a_replayed_terminal_passes(running: Wire) -> None:
    """A terminal, its cancellation and its acceptance may come again after a resume."""
    cancelled = running.frame("job.cancelled", {"job_id": "job_1"}, job_id="job_1")
    last = running.error(3, final_status="cancelled", code="CANCELLED", retryable=False)
    running.see(cancelled, last)
    running.reconnect(2)
    running.see(cancelled, last)
    running.refuses(running.event(4), "after the job's terminal")


def test_an_id_twice_on_one_connection(running: Wire) -> None:
    """The recorder refuses an identical frame a second time on one connection."""
    ping = running.frame("session.ping", {"nonce": "n", "sent_at": TIME})
    running.see(ping)
    running.refuses(ping, "an id twice")


def test_another_session_on_the_same_connection(wire: Wire) -> None:
    """The recorder refuses a frame of another session."""
    pong = wire.frame("session.pong", {"ping_nonce": "n"}, session_id="sess_2")
    wire.refuses(pong, "another session")


@pytest.mark.parametrize("field", ["arcp", "id", "type", "session_id", "payload"])
@pytest.mark.parametrize("value", ["missing", None, 7, ""])
def test_an_envelope_without_its_fields(wire: Wire, field: str, value: Any) -> None:
    """The recorder refuses an envelope without version, id, type, session or payload."""
    frame = wire.frame("session.pong", {"ping_nonce": "n"})
    if value == "missing":
        del frame[field]
    else:
        frame[field] = value
    with pytest.raises(AssertionError, match=field):
        wire.see(frame)


def test_each_connection_has_its_own_place(running: Wire) -> None:
    """Frames that an old connection still delivers are checked against that connection's place."""
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
def observing(wire: Wire) -> Wire:
    """Return a session that observes a job and has received its first event."""
    wire.see(wire.subscribed(), wire.event(1))
    return wire


def _ask(wire: Wire, kind: str, request: str, **payload: Any) -> None:
    wire.record.sent({"type": kind, "id": request, "payload": payload})


def _answer(wire: Wire, request: str) -> Frame:
    return wire.frame("session.jobs", {"request_id": request, "jobs": [], "next_cursor": None})


def test_after_an_unsubscribe_comes_only_what_was_on_its_way(observing: Wire) -> None:
    """After an unsubscribe, events may come until the answer to any later request."""
    _ask(observing, "session.list_jobs", "r7")
    _ask(observing, "job.unsubscribe", "r8", job_id="job_1")
    _ask(observing, "session.list_jobs", "r9")
    observing.see(_answer(observing, "r7"), observing.event(2), _answer(observing, "r9"))
    observing.refuses(observing.event(3), "no longer observed")


def test_an_answer_of_a_connection_that_was_left_begins_nothing(observing: Wire) -> None:
    """A `job.subscribed` that is read after the session went on elsewhere begins no new stream."""
    left = observing.record
    observing.reconnect(1)
    observing.see(observing.result(2))
    observing.record = left
    observing.see(observing.subscribed())
    (only,) = observing.recorder.subscriptions("job_1", session_id="sess_1")
    assert [frame["event_seq"] for frame in only.frames] == [1, 2]
    assert observing.recorder.terminal("job_1") is not None


def test_an_unsubscribe_is_undone_by_a_subscription(observing: Wire) -> None:
    """A subscription after an unsubscribe brings events again, also those that came before."""
    _ask(observing, "job.unsubscribe", "r8", job_id="job_1")
    _ask(observing, "job.subscribe", "r2", job_id="job_1")
    _ask(observing, "session.list_jobs", "r9")
    again = observing.event(2)
    observing.see(again, observing.subscribed(), _answer(observing, "r9"))
    observing.see({**again, "event_seq": 3})
    first, second = observing.recorder.subscriptions("job_1", session_id="sess_1")
    assert [f["event_seq"] for f in first.frames] == [1, 2]
    assert [f["event_seq"] for f in second.frames] == [3]


def test_an_event_does_not_come_twice_in_one_subscription(observing: Wire) -> None:
    """The recorder refuses an event with a second number within one subscription."""
    again = observing.event(2)
    observing.see(again)
    observing.refuses({**again, "event_seq": 3}, "an id that was another frame before")


def test_a_subscription_that_is_told_to_have_ended_brings_nothing_more(observing: Wire) -> None:
    """After RESUME_WINDOW_EXPIRED for a job the recorder refuses further events of it."""
    gone = {"code": "RESUME_WINDOW_EXPIRED", "message": "gone", "retryable": False}
    observing.see(observing.frame("session.error", {**gone, "job_id": "job_1"}))
    observing.refuses(observing.event(2), "no longer observed")


def test_an_unsubscribe_from_ones_own_job_ends_nothing(running: Wire) -> None:
    """An unsubscribe from a job that the session submitted does not end its events."""
    _ask(running, "job.unsubscribe", "r8", job_id="job_1")
    _ask(running, "session.list_jobs", "r9")
    running.see(_answer(running, "r9"), running.event(3))
