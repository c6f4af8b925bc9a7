"""Checks of a single frame of a runtime, on its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NoReturn, TypeAlias, cast

from arcp_trio.wire.json import Json, JsonValue, is_list, is_object

Fields: TypeAlias = dict[str, Json]
"""A JSON object in a frame, such as its payload."""

Frame: TypeAlias = Fields
"""One parsed frame."""

NUMBERED: Final = frozenset({"job.event", "job.result", "job.error"})
"""The types of the frames that carry an `event_seq` (§8.3)."""

TERMINAL: Final = frozenset({"job.result", "job.error"})
"""The types of the last frame of a job."""

TYPES: Final = NUMBERED | {
    "session.welcome",
    "session.error",
    "session.closed",
    "session.ping",
    "session.pong",
    "session.jobs",
    "job.accepted",
    "job.cancelled",
    "x-vendor.arcp-trio.stopped",
    "x-vendor.arcp-trio.answered",
    "x-vendor.arcp-trio.token_made",
    "job.subscribed",
}
"""The types of the frames that a runtime sends."""

CODES: Final = frozenset(
    {
        "PERMISSION_DENIED",
        "LEASE_SUBSET_VIOLATION",
        "JOB_NOT_FOUND",
        "DUPLICATE_KEY",
        "AGENT_NOT_AVAILABLE",
        "AGENT_VERSION_NOT_AVAILABLE",
        "CANCELLED",
        "TIMEOUT",
        "RESUME_WINDOW_EXPIRED",
        "HEARTBEAT_LOST",
        "LEASE_EXPIRED",
        "BUDGET_EXHAUSTED",
        "INVALID_REQUEST",
        "UNAUTHENTICATED",
        "INTERNAL_ERROR",
    }
)
"""The codes of §12, not taken from the runtime: a check must not rely on what it checks."""

_FIXED_RETRYABLE: Final = {
    "LEASE_EXPIRED": False,
    "BUDGET_EXHAUSTED": False,
    "INTERNAL_ERROR": True,
}
_FINAL_STATUSES: Final = {
    # One dialect is told of a cancelled or timed out job by a job.result.
    "job.result": {"success", "cancelled", "timed_out"},
    "job.error": {"error", "cancelled", "timed_out"},
}
_NULLABLE: Final = {
    ("session.jobs", "next_cursor"),
    ("session.jobs", "parent_job_id"),
    ("job.subscribed", "parent_job_id"),
    ("job.result", "result"),
}
_FREE_FORM: Final = frozenset({"result", "details"})
"""Fields whose value is an agent's own JSON, which is not checked."""

_BODY_OPTIONALS: Final = {
    "status": ("message",),
    "tool_call": ("args",),
    "tool_result": ("error",),
    "metric": ("unit", "dimensions"),
    "artifact_ref": ("byte_size", "sha256"),
    "delegate": ("lease_request", "lease_constraints"),
    "progress": ("total", "units", "message"),
}
_TIMES: Final = frozenset(
    {
        "ts",
        "sent_at",
        "received_at",
        "accepted_at",
        "completed_at",
        "created_at",
        "submitted_at",
        "expires_at",
    }
)
_UTC: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class FrameError(AssertionError):
    """A frame breaks a promise of the protocol."""


def require(condition: object, problem: str) -> None:
    """Raise `FrameError` unless the condition holds."""
    if not condition:
        raise FrameError(problem)


def parse_frame(text: str | bytes) -> Frame:
    """Parse a frame of a runtime, with another JSON reader than the runtime's own."""
    require(isinstance(text, str), "a binary frame")
    try:
        frame: JsonValue = json.loads(
            text, object_pairs_hook=_without_repeats, parse_constant=_refuse
        )
    except json.JSONDecodeError as error:
        raise FrameError(f"not JSON ({error}): {text!r}") from None
    return _object(frame, f"not a JSON object: {text!r}")


def _object(value: JsonValue, problem: str) -> Fields:
    require(isinstance(value, dict), problem)
    return cast("Fields", value)


def _without_repeats(pairs: list[tuple[str, JsonValue]]) -> Fields:
    fields = dict(pairs)
    require(len(fields) == len(pairs), f"a field twice in one object: {pairs}")
    return fields


def _refuse(constant: str) -> NoReturn:
    raise FrameError(f"{constant} is not JSON")


def check_frame(frame: Frame) -> None:
    """Raise `FrameError` unless a frame's envelope, nulls, times and errors are right."""
    _check_envelope(frame)
    _check_number(frame)
    kind, payload = frame["type"], frame["payload"]
    if kind == "job.event":
        _check_event(payload)
    else:
        _check_fields(kind, payload)
    if kind in {"session.error", "job.error"}:
        _check_error(payload)
    if kind in TERMINAL:
        status = payload.get("final_status")
        require(status in _FINAL_STATUSES[kind], f"final_status {status!r}")
    if kind == "job.result":
        # §8.4: inline or streamed, never both.
        require(not {"result", "result_id"} <= payload.keys(), "both result and result_id")


def _check_envelope(frame: Frame) -> None:
    require(frame.get("arcp") in {"1.1", "1"}, "no known arcp version")
    for field in ("id", "type", "session_id"):
        value = frame.get(field)
        require(isinstance(value, str) and value, f"no {field}")
    require(isinstance(frame.get("payload"), dict), "no payload object")
    for field, value in frame.items():
        require(value is not None, f"{field} is null")
    kind = frame["type"]
    require(kind in TYPES, f"a runtime does not send {kind}")
    inner = frame["payload"].get("job_id")
    if kind != "session.error" and "job_id" in frame and inner is not None:
        require(inner == frame["job_id"], "job_id differs between envelope and payload")


def _check_number(frame: Frame) -> None:
    if frame["type"] not in NUMBERED:
        require("event_seq" not in frame, f"{frame['type']} carries an event_seq")
        return
    number = frame.get("event_seq")
    # Not isinstance: JSON's true is an int to Python.
    require(type(number) is int and number >= 1, "event_seq is not a positive integer")
    job_id = frame.get("job_id")
    require(isinstance(job_id, str) and job_id, f"{frame['type']} without job_id")


def _check_event(payload: Fields) -> None:
    kind, body = payload.get("kind"), _object(payload.get("body"), "an event without body")
    require(isinstance(kind, str) and kind, "an event without kind")
    _check_time("ts", payload.get("ts"))
    for field in _BODY_OPTIONALS.get(str(kind), ()):
        require(field not in body or body[field] is not None, f"body.{field} is null")
    if kind == "tool_result" and "error" in body:
        _check_error(body["error"])


def _check_fields(kind: str, payload: Fields) -> None:
    for field, value in _fields(payload):
        if field in _TIMES:
            _check_time(field, value)
        require(value is not None or (kind, field) in _NULLABLE, f"{field} is null")


def _fields(value: Fields) -> Iterator[tuple[str, JsonValue]]:
    """Yield the fields of an object at any depth, except those inside free-form JSON."""
    for field, inner in value.items():
        yield field, inner
        if field in _FREE_FORM:
            continue
        for member in inner if is_list(inner) else [inner]:
            require(member is not None or inner is None, f"{field} holds a null")
            if is_object(member):
                yield from _fields(member)


def _check_time(field: str, value: JsonValue) -> None:
    require(isinstance(value, str) and _UTC.fullmatch(value), f"{field} is not a time in UTC")


def _check_error(value: JsonValue) -> None:
    error = _object(value, "an error that is not an object")
    code, message, retryable = (error.get(field) for field in ("code", "message", "retryable"))
    require(code in CODES, f"code {code!r} is not one of §12")
    require(isinstance(message, str) and message, "an error without message")
    require(isinstance(retryable, bool), "an error without a boolean retryable")
    require(_FIXED_RETRYABLE.get(str(code), retryable) == retryable, f"{code} is {retryable=}")
