"""Payloads of messages: how they are read and written."""

from __future__ import annotations

import json
from decimal import Decimal

import attrs
import pytest

from arcp_trio.wire import messages
from arcp_trio.wire.envelope import decode, encode
from arcp_trio.wire.errors import InvalidRequest, JobCancelled, JobNotFound, LeaseExpired
from arcp_trio.wire.messages import (
    TO_CLIENT,
    TO_RUNTIME,
    Accepted,
    Cancel,
    Hello,
    JobErrorBody,
    JobEvent,
    JobResult,
    ListJobs,
    Submit,
    Subscribe,
    parse,
    payload_bytes,
)
from tests.wire.examples import TO_CLIENT_EXAMPLES, TO_RUNTIME_EXAMPLES
from tests.wire.payloads import HELLO, SUBMIT, read, receive

# --- the examples of the specification -------------------------------------------------------


@pytest.mark.spec("6.2-1", "6.3-2", "6.4-2", "6.5-1", "7.4-1", "7.6-2", "7.6-12", "1.0/6.3-1")
@pytest.mark.parametrize("type_name", TO_RUNTIME_EXAMPLES)
def test_a_clients_example_comes_back(type_name: str) -> None:
    """Each example of a client's message is read, and written again as it was."""
    payload = TO_RUNTIME_EXAMPLES[type_name]
    message = read(type_name, payload)
    assert message.type == type_name
    assert json.loads(payload_bytes(message)) == payload


@pytest.mark.spec("6.2-2", "6.4-3", "6.6-1", "7.1-1", "7.4-2", "7.6-5", "8.1-1", "1.0/7.3-1")
@pytest.mark.parametrize("type_name", TO_CLIENT_EXAMPLES)
def test_a_runtimes_example_comes_back(type_name: str) -> None:
    """Each example of a runtime's message is read, and written again as it was."""
    payload = TO_CLIENT_EXAMPLES[type_name]
    message = receive(type_name, payload)
    assert message.type == type_name
    assert json.loads(payload_bytes(message)) == payload


def test_every_message_has_an_example() -> None:
    """The tables know exactly the messages that the examples show."""
    assert set(TO_RUNTIME) == set(TO_RUNTIME_EXAMPLES)
    assert set(TO_CLIENT) == set(TO_CLIENT_EXAMPLES)


# --- leniency, where peers differ ------------------------------------------------------------


def test_null_and_unknown_fields_are_as_good_as_absent() -> None:
    """Null optional fields and fields from elsewhere change nothing."""
    names = [field.name for field in attrs.fields(Submit) if field.name != "agent"]
    assert read("job.submit", {**SUBMIT, **dict.fromkeys(names), "x": 1}) == Submit(agent="a")
    hello = {**HELLO, "auth": None, "capabilities": {"features": None}, "resume": None}
    assert read("session.hello", hello).features == []
    assert read("session.list_jobs", {"filter": None, "limit": None, "cursor": None}) == ListJobs()


def test_a_job_may_be_named_on_the_envelope() -> None:
    """A job_id is taken from the payload, or else from the envelope."""
    assert read("job.cancel", {}, job_id="job_1") == Cancel(job_id="job_1")
    assert read("job.subscribe", {"job_id": None}, job_id="job_1") == Subscribe(job_id="job_1")
    assert read("job.cancel", {"job_id": "job_2"}, job_id="job_1").job_id == "job_2"
    assert receive("job.accepted", {}, job_id="job_1") == Accepted(job_id="job_1")


def test_a_session_may_be_named_on_the_envelope() -> None:
    """A welcome may have its session id on the envelope only; without any it is refused."""
    assert receive("session.welcome", {}, session_id="sess_1").session_id == "sess_1"
    with pytest.raises(InvalidRequest, match="session_id"):
        receive("session.welcome", {})


def test_a_resume_does_not_inherit_the_envelopes_session() -> None:
    """A resume does not take the session id of its envelope, which may be a new session's."""
    assert read("session.resume", {"resume_token": "t"}, session_id="sess_new").session_id is None


@pytest.mark.spec("6.3-2", "1.0/6.3-1")
def test_a_resume_in_three_forms() -> None:
    """A resume is a block in the hello, flat fields in the hello, or a message of its own."""
    block = read("session.hello", {**HELLO, "resume": {"resume_token": "t", "last_event_seq": 4}})
    flat = read("session.hello", {**HELLO, "resume_token": "t", "last_event_seq": 4})
    own = read("session.resume", {"resume_token": "t", "last_event_seq": 4})
    assert block.resumption == flat.resumption == own
    assert read("session.hello", HELLO).resumption is None
    assert read("session.hello", {**HELLO, "last_event_seq": 4}).resumption is None


def test_the_handshake_judges_credentials_and_ranges() -> None:
    """Absent credentials and negative positions are read, for the handshake to judge."""
    assert read("session.hello", HELLO) == Hello(client=messages.PeerInfo(name="c"))
    odd = {**HELLO, "auth": {}, "resume": {"resume_token": "", "last_event_seq": -1}}
    assert read("session.hello", odd).resumption.last_event_seq == -1


@pytest.mark.spec("6.6-3")
@pytest.mark.parametrize(
    ("limit", "size"),
    [(None, 100), (10, 10), (0, 1), (-5, 1), (10**9, 1000), (2.5, 2), (1e300, 1000)],
)
def test_a_limit_is_brought_within_bounds(limit: float | None, size: int) -> None:
    """Any number is accepted as a limit, and brought within bounds."""
    assert read("session.list_jobs", {"limit": limit}).page_size == size


def test_agents_may_be_bare_names() -> None:
    """A welcome lists agents as objects, as names, or both."""
    payload = {"capabilities": {"agents": ["echo", {"name": "ver", "default": None}]}}
    agents = receive("session.welcome", payload, session_id="s").capabilities.agents
    assert agents == ["echo", messages.AgentInfo(name="ver")]
    with pytest.raises(InvalidRequest, match=r"capabilities\.agents\[0\]"):
        receive("session.welcome", {"capabilities": {"agents": [5]}}, session_id="s")


def test_a_client_reads_what_runtimes_make_of_it() -> None:
    """Minimal and odd messages of other runtimes are understood."""
    assert receive("job.event", {"kind": "x"}) == JobEvent(kind="x")
    assert receive("job.result", {"final_status": "cancelled", "completed_at": "x"}).result is None
    assert receive("job.result", {"output": 5}).value == 5
    assert receive("job.result", {"result": 6}).value == 6
    assert receive(
        "job.subscribed", {"job_id": "j", "current_status": "s", "agent": "a", "replayed": 3}
    )
    assert receive("job.accepted", {"job_id": "j", "budget": {"USD": "USD:5.00"}}).budget
    assert receive("session.error", {"code": "X", "details": None}).details is None
    assert receive("session.jobs", {"jobs": []}).jobs == []


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("CANCELLED", "cancelled"),
        ("TIMEOUT", "timed_out"),
        ("LEASE_EXPIRED", "error"),
        ("X", "error"),
    ],
)
def test_a_missing_final_status_follows_from_the_code(code: str, status: str) -> None:
    """Without a final status, the code determines it."""
    assert receive("job.error", {"code": code}).final_status == status
    assert receive("job.error", {"code": code, "final_status": "given"}).final_status == "given"


# --- writing ---------------------------------------------------------------------------------


def test_absent_is_not_null() -> None:
    """An optional field without a value is left out, except for the few that are sent as null."""
    assert payload_bytes(messages.Closed()) == b"{}"
    assert payload_bytes(Submit(agent="a")) == b'{"agent":"a","input":null}'
    assert payload_bytes(messages.JobListing(jobs=[], request_id="r")) == (
        b'{"request_id":"r","jobs":[],"next_cursor":null}'
    )
    subscribed = messages.Subscribed(job_id="j", current_status="running", agent="a")
    assert b'"parent_job_id":null' in payload_bytes(subscribed)


@pytest.mark.spec("8.4-9", "8.4-10", "8.4-11")
def test_a_result_is_inline_or_streamed() -> None:
    """An inline null is written as null; with a result_id there is no `result`."""
    assert payload_bytes(JobResult()) == b'{"final_status":"success","result":null}'
    assert payload_bytes(JobResult(result={"a": None})) == (
        b'{"final_status":"success","result":{"a":null}}'
    )
    assert payload_bytes(JobResult(result_id="res_1", result_size=3)) == (
        b'{"final_status":"success","result_id":"res_1","result_size":3}'
    )


@pytest.mark.spec("7.3-2", "7.4-3", "12-8")
def test_errors_become_messages() -> None:
    """An error becomes an answer, or the end of a job."""
    answer = messages.ErrorBody.of(JobNotFound("no such job"), request_id="r1", job_id="job_1")
    assert json.loads(payload_bytes(answer)) == {
        "code": "JOB_NOT_FOUND",
        "message": "no such job",
        "retryable": False,
        "request_id": "r1",
        "job_id": "job_1",
    }
    end = JobErrorBody.of(JobCancelled("gone", details={"a": 1}), completed_at="T")
    assert json.loads(payload_bytes(end)) == {
        "code": "CANCELLED",
        "final_status": "cancelled",
        "message": "gone",
        "retryable": False,
        "details": {"a": 1},
        "completed_at": "T",
    }
    assert JobErrorBody.of(LeaseExpired("x"), completed_at="T").final_status == "error"


def test_numbers_keep_their_digits() -> None:
    """A Decimal keeps its digits, and a value that is not JSON is refused."""
    assert b'"budget":{"USD":5.00}' in payload_bytes(
        Accepted(job_id="j", budget={"USD": Decimal("5.00")})
    )
    with pytest.raises(ValueError, match=r"bytes is not a JSON value @ \$\.result"):
        payload_bytes(JobResult(result=b"x"))  # type: ignore[arg-type]


def test_a_whole_frame_round_trip() -> None:
    """A message is the same after it was encoded, framed, decoded and parsed."""
    sent = Submit(agent="a", input={"x": [1, 2.5, "ü"]}, max_runtime_sec=5)
    assert parse(decode(encode("job.submit", payload_bytes(sent)))) == sent
