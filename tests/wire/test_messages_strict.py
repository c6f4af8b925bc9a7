"""Payloads that are refused, and the messages of the refusals."""

from __future__ import annotations

from typing import Any

import pytest

from arcp_trio.wire.messages import UnknownType
from tests.wire.examples import TO_CLIENT_EXAMPLES
from tests.wire.payloads import HELLO, SUBMIT, read, receive, refusal

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
            "expected a string, got null @ $.payload.capabilities.features[1]",
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
            "got an integer @ $.payload.lease_request['fs.read'][1]",
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
    """No value is coerced: each wrong type or value raises an InvalidRequest with its path."""
    assert problem in refusal(type_name, payload)


def test_all_problems_are_named_at_once() -> None:
    """One refusal names everything that is wrong, at any depth."""
    payload = {
        "agent": 1,
        "lease_request": {"fs.read": [1]},
        "lease_constraints": {"expires_at": "soon"},
        "max_runtime_sec": 0,
    }
    assert refusal("job.submit", payload).split("; ") == [
        "expected a string, got an integer @ $.payload.agent",
        "expected a string, got an integer @ $.payload.lease_request['fs.read'][0]",
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
    """An unknown type of `session.*` or `job.*` raises an error that quotes it, clipped."""
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
    """A message outside `session.*` and `job.*` is ignored."""
    assert read(name, {"anything": 1}) is None
