"""Clients of other vendors, which are recognised by their hello and get frames in their shape."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from arcp._envelope import Envelope as SdkEnvelope
from arcp._messages.execution import (
    JobAcceptedPayload,
    JobErrorPayload,
    JobResultPayload,
    JobSubscribedPayload,
)
from arcp._messages.session import SessionWelcomePayload

from arcp_trio.wire.dialects import GO, PYTHON, STANDARD, recognise
from arcp_trio.wire.envelope import decode, encode, numbered_head, tail
from arcp_trio.wire.json import dumps

ULID = "01M7Q7FZEH8QM76PR72HPX97BY"
HEAD = numbered_head("sess_1", "1.1") + b"1"


def hello(frame_id: str, capabilities: Any, name: str = "c") -> Any:
    """Return the envelope of a hello."""
    payload = {"client": {"name": name}, "capabilities": capabilities}
    return decode(encode("session.hello", dumps(payload), id=frame_id))


@pytest.mark.parametrize(
    ("frame_id", "capabilities", "name", "quiet"),
    [
        (ULID, {"agents": [], "features": []}, "python", True),
        (ULID, {"agents": None}, "python", True),
        (f"msg_{ULID}", {"features": []}, "typescript", True),
        (f"msg_{ULID}", None, "typescript", True),
        (ULID, {"features": []}, "standard", False),
        (ULID, "nonsense", "standard", False),
        ("0190b4a2-7f2c-7def-8abc-0123456789ab", {}, "standard", False),
    ],
)
def test_a_client_is_recognised(frame_id: str, capabilities: Any, name: str, quiet: bool) -> None:  # noqa: FBT001
    """The hello tells which dialect a client has, and whether late cancels are left unanswered."""
    dialect = recognise(hello(frame_id, capabilities))
    assert (dialect.name, dialect.quiet_after_end) == (name, quiet)
    assert (dialect.translate is None) == (name != "python")


@pytest.mark.parametrize(
    ("client", "name"),
    [("arcp-go-client", "go"), ("arcp-go-client2", "standard"), (["arcp-go-client"], "standard")],
)
def test_a_go_client_is_recognised_by_its_name(client: Any, name: str) -> None:
    """The Go SDK's client says in its hello who it is."""
    assert recognise(hello(ULID, {"features": []}, client)).name == name


def test_a_go_client_reads_output() -> None:
    """An inline result has the name `output` for a Go client; nothing else is changed."""
    assert GO.translate is not None
    said: dict[str, Any] = {
        "final_status": "success",
        "result": {"result": ["result"]},
        "completed_at": "now",
    }
    cases: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
        ("job.result", said, {n if n != "result" else "output": v for n, v in said.items()}),
        ("job.result", {"final_status": "success", "result_id": "r"}, None),
        ("job.error", said, None),
        ("job.event", said, None),
    ]
    for kind, payload, shown in cases:
        translation = GO.translate(tail(kind, dumps(payload), id=ULID, job_id="job_1"))
        assert translation is not None
        assert json.loads(HEAD + translation)["payload"] == (shown or payload)


def translated(type: str, payload: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    """Return a numbered frame as a Python client receives it."""
    assert PYTHON.translate is not None
    end = tail(type, dumps(payload), id=ULID, job_id="job_1", trace_id="a" * 32)
    translation = PYTHON.translate(end)
    assert translation is not None
    fields: dict[str, Any] = json.loads(HEAD + translation)
    SdkEnvelope.from_wire(fields)  # its own model takes the envelope
    return fields


ACCEPTED: Final[dict[str, Any]] = {
    "job_id": "job_1",
    "agent": "echo@1.0.0",
    "lease": {"cost.budget": ["USD:5.00"]},
    "accepted_at": "2026-05-13T19:30:00.000Z",
    "trace_id": "a" * 32,
    "request_id": "r1",
}
ENDED: Final[dict[str, Any]] = {
    "code": "CANCELLED",
    "final_status": "cancelled",
    "message": "m",
    "retryable": False,
    "completed_at": "2026-05-13T19:30:00.000Z",
}


def test_budgets_are_strings_for_a_python_client() -> None:
    """Amounts are written as in a lease, without an exponent; the rest of the frame stays."""
    budget = {"USD": 5.0, "credits": 1000, "X": 0.0000001}
    frame = translated("job.accepted", {**ACCEPTED, "budget": budget})
    payload = frame["payload"]
    assert payload["budget"] == {"USD": "USD:5.0", "credits": "credits:1000", "X": "X:0.0000001"}
    assert {**payload, "budget": budget} == {**ACCEPTED, "budget": budget}
    assert (frame["id"], frame["job_id"], frame["event_seq"]) == (ULID, "job_1", 1)
    JobAcceptedPayload.model_validate(payload)


@pytest.mark.parametrize(("status", "code"), [("cancelled", "CANCELLED"), ("timed_out", "TIMEOUT")])
def test_an_end_without_error_is_a_result_for_a_python_client(status: str, code: str) -> None:
    """Cancelled and timed-out jobs end in the shape of the SDK's models, with the same number."""
    frame = translated("job.error", {**ENDED, "final_status": status, "code": code})
    assert frame["type"] == "job.result"
    assert frame["payload"] == {"final_status": status, "completed_at": ENDED["completed_at"]}
    assert (frame["event_seq"], frame["id"], frame["job_id"]) == (1, ULID, "job_1")
    JobResultPayload.model_validate(frame["payload"])


def test_other_frames_reach_a_python_client_untouched() -> None:
    """Real errors, acceptances without a budget, events and results are the same bytes."""
    assert PYTHON.translate is not None
    for type_name, payload in [
        ("job.error", {**ENDED, "final_status": "error", "code": "INTERNAL_ERROR"}),
        ("job.accepted", ACCEPTED),
        ("job.event", {"kind": "log", "ts": "T", "body": {"type": "job.error"}}),
        ("job.result", {"final_status": "success", "result": None, "completed_at": "T"}),
    ]:
        end = tail(type_name, dumps(payload), id=ULID, job_id="job_1")
        translation = PYTHON.translate(end)
        assert translation is not None
        assert json.loads(b"{" + translation[1:]) == json.loads(b"{" + end[1:])
    JobErrorPayload.model_validate({**ENDED, "final_status": "error"})


def test_a_python_client_is_not_told_of_children() -> None:
    """A child's acceptance is left out, which the SDK would take for an answer to a submit."""
    child = {**ACCEPTED, "parent_job_id": "job_0", "delegate_id": "del_1"}
    assert PYTHON.translate is not None
    assert PYTHON.translate(tail("job.accepted", dumps(child), id=ULID)) is None


def test_our_shapes_pass_the_python_models() -> None:
    """The SDK's own models read the frames that need no translation."""
    SessionWelcomePayload.model_validate(
        {
            "session_id": "sess_1",
            "runtime": {"name": "r", "version": "1"},
            "resume_token": "rt_1",
            "resume_window_sec": 600,
            "heartbeat_interval_sec": 30,
            "accepted_at": "T",
            "capabilities": {
                "encodings": ["json"],
                "features": ["ack"],
                "agents": [{"name": "echo", "versions": ["1"], "default": "1"}],
            },
        }
    )
    JobSubscribedPayload.model_validate(
        {
            "request_id": "r1",
            "job_id": "job_1",
            "current_status": "running",
            "agent": "echo@1.0.0",
            "lease": {},
            "parent_job_id": None,
            "trace_id": "a" * 32,
            "subscribed_from": 4,
            "replayed": True,
        }
    )


def test_the_standard_needs_nothing() -> None:
    """The standard dialect has no translation."""
    assert STANDARD.translate is None
    assert STANDARD.quiet_after_end is False
