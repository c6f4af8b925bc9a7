"""Event bodies (§8.2): their classes, and the strict encoding of what an agent emits.

The classes are the schema. `encode_event` checks a body against it without making an object of
it: it runs once for every event of every job. Fields beyond the schema are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isfinite
from typing import Any, TypeAlias, get_args, get_type_hints

import attrs

from arcp_trio.wire.errors import CODES, clip
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import MAX_DEPTH, Json, JsonObject, dumps

Number: TypeAlias = int | float | Decimal

LOG_LEVELS = frozenset({"trace", "debug", "info", "warn", "error", "critical"})
ENCODINGS = frozenset({"utf8", "base64"})


class InvalidEvent(ValueError):
    """An event that an agent may not emit; the message names the path and the reason."""


# --- the bodies ------------------------------------------------------------------------------
# A validator here is a check of the schema: `_check` below runs it without an instance.

_Rule: TypeAlias = Callable[[Any], bool]
_EXPECTED = "expected"  # metadata: what a rule wants, in words
_RULE = "rule"


def _rule(expected: str, holds: _Rule) -> dict[str, Any]:
    return {_EXPECTED: expected, _RULE: holds}


def _not_negative(number: Number) -> bool:
    return number >= 0


_NON_NEGATIVE = _rule("a number that is not negative", _not_negative)
_NON_EMPTY = _rule("a non-empty string", bool)


@attrs.frozen(kw_only=True)
class Log:
    """A line for people."""

    level: str = attrs.field(
        metadata=_rule("one of " + ", ".join(sorted(LOG_LEVELS)), LOG_LEVELS.__contains__)
    )
    message: str


@attrs.frozen(kw_only=True)
class Thought:
    """What the agent makes of it."""

    text: str


@attrs.frozen(kw_only=True)
class ToolCall:
    """A tool is being called."""

    tool: str = attrs.field(metadata=_NON_EMPTY)
    call_id: str = attrs.field(metadata=_NON_EMPTY)
    args: Json = None


@attrs.frozen(kw_only=True)
class ToolResult:
    """What a tool call came to: exactly one of `result` and `error`."""

    call_id: str = attrs.field(metadata=_NON_EMPTY)
    result: Json = None
    error: JsonObject | None = None


@attrs.frozen(kw_only=True)
class Status:
    """The job has entered a phase."""

    phase: str = attrs.field(metadata=_NON_EMPTY)
    message: str | None = None


@attrs.frozen(kw_only=True)
class Metric:
    """A measurement; one whose name begins with `cost.` is spending (§9.6)."""

    name: str = attrs.field(metadata=_NON_EMPTY)
    value: Number
    unit: str | None = None
    dimensions: JsonObject | None = None


@attrs.frozen(kw_only=True)
class ArtifactRef:
    """Something the job has made, kept elsewhere."""

    uri: str = attrs.field(metadata=_NON_EMPTY)
    content_type: str = attrs.field(metadata=_NON_EMPTY)
    byte_size: int | None = attrs.field(default=None, metadata=_NON_NEGATIVE)
    sha256: str | None = None


@attrs.frozen(kw_only=True)
class Delegate:
    """Part of the work goes to another agent, with part of the lease (§10)."""

    delegate_id: str = attrs.field(metadata=_NON_EMPTY)
    agent: str = attrs.field(metadata=_NON_EMPTY)
    input: Json = None
    lease_request: JsonObject | None = None
    lease_constraints: JsonObject | None = None


@attrs.frozen(kw_only=True)
class Progress:
    """How far the job is (§8.2.1). `current` beyond `total` is let through: only a SHOULD."""

    current: Number = attrs.field(metadata=_NON_NEGATIVE)
    total: Number | None = attrs.field(default=None, metadata=_NON_NEGATIVE)
    units: str | None = None
    message: str | None = None


@attrs.frozen(kw_only=True)
class ResultChunk:
    """A piece of a streamed result (§8.4)."""

    result_id: str = attrs.field(metadata=_NON_EMPTY)
    chunk_seq: int = attrs.field(metadata=_NON_NEGATIVE)
    data: str
    encoding: str = attrs.field(metadata=_rule("one of utf8, base64", ENCODINGS.__contains__))
    more: bool


Body: TypeAlias = (
    Log
    | Thought
    | ToolCall
    | ToolResult
    | Status
    | Metric
    | ArtifactRef
    | Delegate
    | Progress
    | ResultChunk
)

KINDS: Mapping[str, type[Body]] = {
    "log": Log,
    "thought": Thought,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "status": Status,
    "metric": Metric,
    "artifact_ref": ArtifactRef,
    "delegate": Delegate,
    "progress": Progress,
    "result_chunk": ResultChunk,
}
"""The kinds of §8.2, each with the class of its body."""

_VENDOR_KIND = re.compile(r"x-vendor(?:\.[A-Za-z0-9_-]+){2,}")
_MAX_KIND = 128

_FEATURES: Mapping[str, str] = {
    "progress": Feature.PROGRESS,
    "result_chunk": Feature.RESULT_CHUNK,
}


def feature_of(kind: str) -> str | None:
    """The feature a session must have negotiated to be sent events of this kind."""
    return _FEATURES.get(kind)


# --- encoding --------------------------------------------------------------------------------


def encode_event(kind: str, body: Mapping[str, Json], ts: str) -> bytes:
    """The payload of a `job.event`; `InvalidEvent` says why it may not be one.

    An optional field that is None is left out. `ts` is put in as it stands.
    """
    body = check_body(kind, body)
    try:
        # The body stands two levels below the frame, whose depth peers bound.
        encoded = dumps(body, max_depth=MAX_DEPTH - 2)
    except ValueError as error:
        raise InvalidEvent(f"{kind}: {error}") from None
    return b'{"kind":"%b","ts":"%b","body":%b}' % (kind.encode(), ts.encode(), encoded)


def check_body(kind: str, body: Mapping[str, Json]) -> Mapping[str, Json]:
    """The body as it may be sent under this kind, or `InvalidEvent`."""
    if type(body) is not dict:
        if not isinstance(body, Mapping):
            raise InvalidEvent(f"{clip(str(kind))}: a body is an object")
        body = dict(body)
    fields = _SCHEMA.get(kind)
    if fields is None:
        if len(kind) > _MAX_KIND or _VENDOR_KIND.fullmatch(kind) is None:
            raise InvalidEvent(
                f"unknown kind {clip(repr(kind))}: a kind of §8.2, or x-vendor.<vendor>.<name>"
            )
        return body
    for name, types, required, rule, expected in fields:
        value = body.get(name)
        if value is None:
            if required:
                raise InvalidEvent(f"{kind}: {expected} is required @ $.{name}")
            if name in body and types is not None:
                body = {key: item for key, item in body.items() if key != name}
        elif types is not None and (type(value) not in types or (rule and not rule(value))):
            raise InvalidEvent(f"{kind}: expected {expected} @ $.{name}")
    check = _WHOLE_BODY.get(kind)
    if check is not None:
        check(body)
    return body


def _check_tool_result(body: Mapping[str, Json]) -> None:
    if ("result" in body) == ("error" in body):
        raise InvalidEvent("tool_result: exactly one of result and error @ $")
    error = body.get("error")
    if error is not None and (
        error.get("code") not in CODES
        or not isinstance(error.get("message"), str)
        or not isinstance(error.get("retryable"), bool)
    ):
        raise InvalidEvent("tool_result: expected a code of §12, a message and retryable @ $.error")


def _check_metric(body: Mapping[str, Json]) -> None:
    if body["value"] < 0 and body["name"].startswith("cost."):
        raise InvalidEvent("metric: a cost is not negative @ $.value")


_WHOLE_BODY: Mapping[str, Callable[[Mapping[str, Json]], None]] = {
    "tool_result": _check_tool_result,
    "metric": _check_metric,
}


# --- the schema, as the check wants it -------------------------------------------------------

# name, accepted types (None: any JSON value), required, rule, what is expected
_Field: TypeAlias = tuple[str, frozenset[type] | None, bool, _Rule | None, str]

_TYPE_NAMES = {str: "a string", bool: "a boolean", int: "an integer", dict: "an object"}


def _schema_of(cls: type[Body]) -> tuple[_Field, ...]:
    hints = get_type_hints(cls)
    return tuple(_field_of(field, hints[field.name]) for field in attrs.fields(cls))


def _field_of(field: attrs.Attribute[Any], hint: Any) -> _Field:
    required = field.default is attrs.NOTHING
    if hint is Any:
        return (field.name, None, required, None, "a value")
    accepted = [getattr(kind, "__origin__", kind) for kind in get_args(hint) or (hint,)]
    types = frozenset(accepted) - {type(None)}
    rule = field.metadata.get(_RULE)
    if Decimal in types:
        expected, rule = "a finite number", _finite_and(rule)
    else:
        expected = _TYPE_NAMES[next(iter(types))]
    return (field.name, types, required, rule, field.metadata.get(_EXPECTED, expected))


def _finite_and(rule: _Rule | None) -> _Rule:
    return lambda number: isfinite(number) and (rule is None or rule(number))


_SCHEMA: Mapping[str, tuple[_Field, ...]] = {kind: _schema_of(cls) for kind, cls in KINDS.items()}
