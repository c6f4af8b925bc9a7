"""Payloads of messages: how they are read, refused and written."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

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
    UnknownType,
    decode_payload,
    parse,
    payload_bytes,
)


def envelope(type: str, payload: Any, **fields: Any) -> Any:  # noqa: A002
    """Return the envelope of a frame that came over the wire."""
    return decode(
        json.dumps({"arcp": "1.1", "id": "r1", "type": type, "payload": payload, **fields})
    )


def read(type: str, payload: Any, **fields: Any) -> Any:  # noqa: A002
    """Read a message that a client sent."""
    return parse(envelope(type, payload, **fields))


def receive(type: str, payload: Any, **fields: Any) -> Any:  # noqa: A002
    """Read a message that a runtime sent."""
    return decode_payload(envelope(type, payload, **fields), TO_CLIENT)


def refusal(type: str, payload: Any, **fields: Any) -> str:  # noqa: A002
    """Return what the refusal of a client's message says."""
    with pytest.raises(InvalidRequest) as caught:
        read(type, payload, **fields)
    assert caught.value.code == "INVALID_REQUEST"
    caught.value.message.encode()
    return caught.value.message


HELLO = {"client": {"name": "c"}}
SUBMIT = {"agent": "a"}


# --- the examples of the specification -------------------------------------------------------

TO_RUNTIME_EXAMPLES: dict[str, dict[str, Any]] = {
    "session.hello": {
        "client": {"name": "examplectl", "version": "0.4.1"},
        "auth": {"scheme": "bearer", "token": "t"},
        "capabilities": {"encodings": ["json"], "features": ["heartbeat", "ack"]},
        "resume": {"session_id": "sess_1", "resume_token": "rt_4f8c", "last_event_seq": 1827},
    },
    "session.resume": {"resume_token": "rt_1", "last_event_seq": 3, "session_id": "sess_1"},
    "session.ping": {"nonce": "p_01J", "sent_at": "2026-05-13T19:42:13.000Z"},
    "session.pong": {"ping_nonce": "p_01J", "received_at": "2026-05-13T19:42:13.020Z"},
    "session.ack": {"last_processed_seq": 1827},
    "session.list_jobs": {
        "filter": {
            "status": ["running", "pending"],
            "agent": "code-refactor",
            "created_after": "2026-05-13T00:00:00Z",
        },
        "limit": 100,
    },
    "session.close": {"reason": "done"},
    "session.bye": {"reason": "client_shutdown"},
    "job.submit": {
        "agent": "code-refactor@2.0.0",
        "input": {"instruction": "x", "paths": ["/a"], "null": None},
        "lease_request": {"fs.read": ["/workspace/**"], "cost.budget": ["USD:5.00"]},
        "lease_constraints": {"expires_at": "2026-05-13T23:42:00Z"},
        "idempotency_key": "refactor-auth-2026-W19",
        "max_runtime_sec": 1800,
    },
    "job.cancel": {"job_id": "job_1", "reason": "User requested cancel"},
    "job.subscribe": {"job_id": "job_01JABC", "from_event_seq": 0, "history": True},
    "job.unsubscribe": {"job_id": "job_01JABC"},
}

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TO_CLIENT_EXAMPLES: dict[str, dict[str, Any]] = {
    "session.welcome": {
        "session_id": "sess_1",
        "runtime": {"name": "r", "version": "1.1.0"},
        "resume_token": "rt_4f8c",
        "resume_window_sec": 600,
        "heartbeat_interval_sec": 30,
        "accepted_at": "2026-05-13T19:30:00.000Z",
        "capabilities": {
            "encodings": ["json"],
            "features": ["heartbeat"],
            "agents": [
                {"name": "code-refactor", "versions": ["1.0.0", "2.0.0"], "default": "2.0.0"},
                {"name": "no-default", "versions": ["1"]},
            ],
        },
    },
    "session.error": {
        "code": "AGENT_NOT_AVAILABLE",
        "message": "m",
        "retryable": False,
        "request_id": "r1",
        "job_id": "job_1",
        "details": {"a": 1},
    },
    "session.ping": TO_RUNTIME_EXAMPLES["session.ping"],
    "session.pong": TO_RUNTIME_EXAMPLES["session.pong"],
    "session.closed": {},
    "session.bye": {},
    "session.jobs": {
        "request_id": "r1",
        "jobs": [
            {
                "job_id": "job_1",
                "agent": "code-refactor@2.0.0",
                "status": "running",
                "lease": {},
                "parent_job_id": None,
                "created_at": "2026-05-13T19:30:00Z",
                "submitted_at": "2026-05-13T19:30:00Z",
                "trace_id": TRACE,
                "last_event_seq": 1822,
            }
        ],
        "next_cursor": None,
    },
    "job.accepted": {
        "job_id": "job_1",
        "agent": "echo@1.0.0",
        "lease": {"cost.budget": ["USD:5.00"]},
        "lease_constraints": {"expires_at": "2026-05-13T23:42:00Z"},
        "budget": {"USD": 5.0},
        "credentials": [{"id": "cred_1", "scheme": "bearer", "value": "v", "endpoint": "u"}],
        "accepted_at": "2026-05-13T19:30:00Z",
        "trace_id": TRACE,
        "request_id": "r1",
    },
    "job.cancelled": {"job_id": "job_1", "reason": "why"},
    "job.event": {"kind": "status", "ts": "2026-05-13T19:30:00Z", "body": {"phase": "running"}},
    "job.result": {
        "final_status": "success",
        "result_id": "res_1",
        "result_size": 31457280,
        "summary": "Generated report in 137 chunks.",
        "completed_at": "2026-05-13T19:50:00Z",
    },
    "job.error": {
        "code": "CANCELLED",
        "final_status": "cancelled",
        "message": "m",
        "retryable": False,
        "completed_at": "2026-05-13T19:50:00Z",
    },
    "job.subscribed": {
        "request_id": "r1",
        "job_id": "job_1",
        "current_status": "running",
        "agent": "code-refactor@2.0.0",
        "lease": {},
        "lease_constraints": {"expires_at": "2026-05-13T23:42:00Z"},
        "budget": {"USD": 3.58},
        "parent_job_id": None,
        "trace_id": TRACE,
        "subscribed_from": 1830,
        "replayed": False,
    },
}


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


# --- strictness ------------------------------------------------------------------------------


@pytest.mark.spec("12-5")
@pytest.mark.parametrize(
    ("type_name", "payload", "problem"),
    [
        ("session.hello", {}, "missing @ $.payload.client"),
        ("session.hello", {"client": None}, "expected an object, got null @ $.payload.client"),
        ("session.hello", {"client": {}}, "missing @ $.payload.client.name"),
        ("session.hello", {"client": {"name": ""}}, "1 to 256 characters @ $.payload.client.name"),
        ("session.hello", {"client": {"name": None}}, "got null @ $.payload.client.name"),
        ("session.hello", {"client": {"name": "c", "version": 1}}, "@ $.payload.client.version"),
        (
            "session.hello",
            {**HELLO, "auth": "t"},
            "expected an object, got a string @ $.payload.auth",
        ),
        ("session.hello", {**HELLO, "auth": {"token": 5}}, "@ $.payload.auth.token"),
        ("session.hello", {**HELLO, "auth": {"scheme": []}}, "@ $.payload.auth.scheme"),
        ("session.hello", {**HELLO, "capabilities": []}, "@ $.payload.capabilities"),
        (
            "session.hello",
            {**HELLO, "capabilities": {"features": "ack"}},
            "expected an array, got a string @ $.payload.capabilities.features",
        ),
        (
            "session.hello",
            {**HELLO, "capabilities": {"features": ["ack", None]}},
            "expected a string @ $.payload.capabilities.features[1]",
        ),
        ("session.hello", {**HELLO, "resume": {}}, "missing @ $.payload.resume.resume_token"),
        (
            "session.hello",
            {**HELLO, "resume": {"resume_token": "t", "last_event_seq": "1"}},
            "expected an integer, got a string @ $.payload.resume.last_event_seq",
        ),
        ("session.hello", {**HELLO, "last_event_seq": 1.0}, "@ $.payload.last_event_seq"),
        ("session.hello", {**HELLO, "resume_token": 1}, "@ $.payload.resume_token"),
        ("session.resume", {"last_event_seq": 1}, "missing @ $.payload.resume_token"),
        ("session.ping", {}, "missing @ $.payload.nonce"),
        ("session.ping", {"nonce": 1}, "@ $.payload.nonce"),
        ("session.ping", {"nonce": "n" * 5000}, "0 to 4096 characters @ $.payload.nonce"),
        ("session.pong", {"ping_nonce": None}, "@ $.payload.ping_nonce"),
        ("session.ack", {}, "missing @ $.payload.last_processed_seq"),
        ("session.ack", {"last_processed_seq": "1"}, "@ $.payload.last_processed_seq"),
        ("session.ack", {"last_processed_seq": 1.0}, "got a number @ $.payload.last_processed_seq"),
        (
            "session.ack",
            {"last_processed_seq": True},
            "got a boolean @ $.payload.last_processed_seq",
        ),
        ("session.close", {"reason": 1}, "@ $.payload.reason"),
        ("session.bye", {"reason": {}}, "got an object @ $.payload.reason"),
        ("session.list_jobs", {"filter": []}, "@ $.payload.filter"),
        ("session.list_jobs", {"filter": {"status": "running"}}, "@ $.payload.filter.status"),
        (
            "session.list_jobs",
            {"filter": {"created_after": "x"}},
            "@ $.payload.filter.created_after",
        ),
        ("session.list_jobs", {"limit": "10"}, "expected a number, got a string @ $.payload.limit"),
        ("session.list_jobs", {"limit": True}, "@ $.payload.limit"),
        ("session.list_jobs", {"cursor": 0}, "@ $.payload.cursor"),
        ("job.submit", {}, "missing @ $.payload.agent"),
        ("job.submit", {"agent": None}, "expected a string, got null @ $.payload.agent"),
        ("job.submit", {**SUBMIT, "lease_request": []}, "@ $.payload.lease_request"),
        (
            "job.submit",
            {**SUBMIT, "lease_request": {"fs.read": "/a"}},
            "@ $.payload.lease_request['fs.read']",
        ),
        (
            "job.submit",
            {**SUBMIT, "lease_request": {"fs.read": ["/a", 1]}},
            "non-empty string @ $.payload.lease_request['fs.read'][1]",
        ),
        (
            "job.submit",
            {**SUBMIT, "lease_request": {"fs.read": [""]}},
            "lease_request['fs.read'][0]",
        ),
        ("job.submit", {**SUBMIT, "lease_request": {"": []}}, "@ $.payload.lease_request['']"),
        ("job.submit", {**SUBMIT, "lease_constraints": "x"}, "@ $.payload.lease_constraints"),
        (
            "job.submit",
            {**SUBMIT, "lease_constraints": {"expires_at": 1}},
            "lease_constraints.expires_at",
        ),
        (
            "job.submit",
            {**SUBMIT, "lease_constraints": {"expires_at": "2099-01-01T00:00:00+00:00"}},
            "ending in Z @ $.payload.lease_constraints.expires_at",
        ),
        (
            "job.submit",
            {**SUBMIT, "lease_constraints": {"expires_at": "soon"}},
            "constraints.expires_at",
        ),
        ("job.submit", {**SUBMIT, "idempotency_key": ""}, "@ $.payload.idempotency_key"),
        ("job.submit", {**SUBMIT, "idempotency_key": "k" * 257}, "@ $.payload.idempotency_key"),
        ("job.submit", {**SUBMIT, "idempotency_key": 1}, "@ $.payload.idempotency_key"),
        (
            "job.submit",
            {**SUBMIT, "max_runtime_sec": 0},
            "positive integer @ $.payload.max_runtime_sec",
        ),
        ("job.submit", {**SUBMIT, "max_runtime_sec": -1}, "@ $.payload.max_runtime_sec"),
        ("job.submit", {**SUBMIT, "max_runtime_sec": 1.0}, "@ $.payload.max_runtime_sec"),
        ("job.submit", {**SUBMIT, "max_runtime_sec": True}, "@ $.payload.max_runtime_sec"),
        ("job.submit", {**SUBMIT, "max_runtime_sec": "60"}, "@ $.payload.max_runtime_sec"),
        ("job.cancel", {}, "missing @ $.payload.job_id"),
        ("job.cancel", {"job_id": ""}, "@ $.payload.job_id"),
        ("job.cancel", {"job_id": "j" * 257}, "@ $.payload.job_id"),
        ("job.cancel", {"job_id": "j", "reason": 1}, "@ $.payload.reason"),
        ("job.subscribe", {}, "@ $.payload.job_id"),
        ("job.subscribe", {"job_id": "j", "history": 1}, "@ $.payload.history"),
        ("job.subscribe", {"job_id": "j", "from_event_seq": "0"}, "@ $.payload.from_event_seq"),
        ("job.unsubscribe", {"job_id": 1}, "@ $.payload.job_id"),
    ],
)
def test_a_wrong_field_is_named(type_name: str, payload: dict[str, Any], problem: str) -> None:
    """Nothing is coerced: each wrong type or value is an InvalidRequest with its path."""
    assert problem in refusal(type_name, payload)


def test_all_problems_are_named_at_once() -> None:
    """One answer tells everything that is wrong, however deep it stands."""
    payload = {
        "agent": 1,
        "lease_request": {"fs.read": [1]},
        "lease_constraints": {"expires_at": "soon"},
        "max_runtime_sec": 0,
    }
    assert refusal("job.submit", payload).split("; ") == [
        "expected a string, got an integer @ $.payload.agent",
        "expected a non-empty string @ $.payload.lease_request['fs.read'][0]",
        "expected an RFC 3339 timestamp ending in Z @ $.payload.lease_constraints.expires_at",
        "expected a positive integer @ $.payload.max_runtime_sec",
    ]


@pytest.mark.parametrize(
    ("type_name", "payload"),
    [
        ("job.submit", {**SUBMIT, "lease_request": {"fs.read": [1] * 100_000}}),
        ("job.submit", {**SUBMIT, "lease_request": {f"{n:0900}": 1 for n in range(1000)}}),
        ("session.hello", {**HELLO, "capabilities": {"features": [None] * 100_000}}),
    ],
)
def test_endless_problems_make_a_short_answer(type_name: str, payload: dict[str, Any]) -> None:
    """A hundred thousand mistakes, or names of a kilobyte, are answered in a few hundred bytes."""
    message = refusal(type_name, payload)
    assert message.endswith("and more")
    assert len(message) < 2000


@pytest.mark.parametrize("name", ["session.jump", "job.pause", "session.", "job." + "x" * 200])
def test_an_unknown_core_message_is_refused(name: str) -> None:
    """An unknown name in the protocol's own namespaces is an error that quotes it, clipped."""
    with pytest.raises(UnknownType) as caught:
        read(name, {})
    assert len(caught.value.message) < 150
    with pytest.raises(UnknownType):
        receive(name, {})


def test_directions_are_kept_apart() -> None:
    """A runtime's message is unknown when a client sends it."""
    with pytest.raises(UnknownType):
        read("session.welcome", TO_CLIENT_EXAMPLES["session.welcome"])
    with pytest.raises(UnknownType):
        receive("job.submit", SUBMIT)


@pytest.mark.parametrize("name", ["x-vendor.acme.hello", "telemetry", "jobs", "sessions.x"])
def test_messages_of_others_are_ignored(name: str) -> None:
    """A message outside `session.*` and `job.*` is nothing to anybody."""
    assert read(name, {"anything": 1}) is None


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
    """A welcome with the session id on its envelope only is as good; without any it is not."""
    assert receive("session.welcome", {}, session_id="sess_1").session_id == "sess_1"
    with pytest.raises(InvalidRequest, match="session_id"):
        receive("session.welcome", {})


def test_a_resume_does_not_inherit_the_envelopes_session() -> None:
    """On a fresh connection the envelope names the fresh session, not the one to go on with."""
    assert read("session.resume", {"resume_token": "t"}, session_id="sess_new").session_id is None


@pytest.mark.spec("6.3-2", "1.0/6.3-1")
def test_a_resume_in_three_forms() -> None:
    """A block in the hello, flat fields in the hello, or a message of its own."""
    block = read("session.hello", {**HELLO, "resume": {"resume_token": "t", "last_event_seq": 4}})
    flat = read("session.hello", {**HELLO, "resume_token": "t", "last_event_seq": 4})
    own = read("session.resume", {"resume_token": "t", "last_event_seq": 4})
    assert block.resumption == flat.resumption == own
    assert read("session.hello", HELLO).resumption is None
    assert read("session.hello", {**HELLO, "last_event_seq": 4}).resumption is None


def test_the_handshake_judges_credentials_and_ranges() -> None:
    """Absent credentials and negative positions are read; it is not for the schema to answer."""
    assert read("session.hello", HELLO) == Hello(client=messages.PeerInfo(name="c"))
    odd = {**HELLO, "auth": {}, "resume": {"resume_token": "", "last_event_seq": -1}}
    assert read("session.hello", odd).resumption.last_event_seq == -1


@pytest.mark.spec("6.6-3")
@pytest.mark.parametrize(
    ("limit", "size"),
    [(None, 100), (10, 10), (0, 1), (-5, 1), (10**9, 1000), (2.5, 2), (1e300, 1000)],
)
def test_a_limit_is_brought_within_bounds(limit: float | None, size: int) -> None:
    """Any number will do as a limit."""
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
    """Where a runtime leaves the status out, the code tells it."""
    assert receive("job.error", {"code": code}).final_status == status
    assert receive("job.error", {"code": code, "final_status": "given"}).final_status == "given"


# --- writing ---------------------------------------------------------------------------------


def test_absent_is_not_null() -> None:
    """An optional field without a value is not on the wire, save the few that peers look for."""
    assert payload_bytes(messages.Closed()) == b"{}"
    assert payload_bytes(Submit(agent="a")) == b'{"agent":"a","input":null}'
    assert payload_bytes(messages.Jobs(jobs=[], request_id="r")) == (
        b'{"request_id":"r","jobs":[],"next_cursor":null}'
    )
    subscribed = messages.Subscribed(job_id="j", current_status="running", agent="a")
    assert b'"parent_job_id":null' in payload_bytes(subscribed)


@pytest.mark.spec("8.4-9", "8.4-10", "8.4-11")
def test_a_result_is_inline_or_streamed() -> None:
    """An inline null is written as one; with a result_id there is no `result` at all."""
    assert payload_bytes(JobResult()) == b'{"final_status":"success","result":null}'
    assert payload_bytes(JobResult(result={"a": None})) == (
        b'{"final_status":"success","result":{"a":null}}'
    )
    assert payload_bytes(JobResult(result_id="res_1", result_size=3)) == (
        b'{"final_status":"success","result_id":"res_1","result_size":3}'
    )


@pytest.mark.spec("7.3-2", "7.4-3", "12-8")
def test_errors_become_messages() -> None:
    """An exception is turned into an answer or into a job's end."""
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
    """A Decimal budget is written digit for digit, and what is not JSON is refused."""
    assert b'"budget":{"USD":5.00}' in payload_bytes(
        Accepted(job_id="j", budget={"USD": Decimal("5.00")})
    )
    with pytest.raises(ValueError, match=r"bytes is not a JSON value @ \$\.result"):
        payload_bytes(JobResult(result=b"x"))


def test_a_whole_frame_round_trip() -> None:
    """Message to bytes to frame to envelope to message."""
    sent = Submit(agent="a", input={"x": [1, 2.5, "ü"]}, max_runtime_sec=5)
    assert parse(decode(encode("job.submit", payload_bytes(sent)))) == sent
