"""Event bodies (§8.2): their classes, and the strict encoding of what an agent emits.

The classes are the schema. `encode_event` checks a body against it without making an object of
it: it runs once for every event of every job. Fields beyond the schema are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import UnionType
from typing import Any, TypeAlias, cast, get_args, get_type_hints

import attrs

from arcp_trio.wire.errors import CODES, clip
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import MAX_DEPTH, Json, dumps, is_finite, plain

Number: TypeAlias = int | float | Decimal

LOG_LEVELS = frozenset({"trace", "debug", "info", "warn", "error", "critical"})
ENCODINGS = frozenset({"utf8", "base64"})


class InvalidEvent(ValueError):  # noqa: N818 - it reads as the refusal it is
    """An event that an agent may not emit; the message names the path and the reason."""


# --- the bodies ------------------------------------------------------------------------------
# The metadata are what `check_body` below holds a body to, beyond the types.

_Rule: TypeAlias = Callable[[Any], object]  # judged by its truth
_EXPECTED = "expected"  # metadata: what a rule wants, in words
_RULE = "rule"
_ANYTHING = "anything"  # metadata: there is nothing to check, and null is not the same as absent


def _rule(expected: str, holds: _Rule) -> dict[str, Any]:
    return {_EXPECTED: expected, _RULE: holds}


def _not_negative(number: Number) -> bool:
    return number >= 0


_NON_NEGATIVE = _rule("a number that is not negative", _not_negative)
_NON_EMPTY = _rule("a non-empty string", bool)
_SHA256 = _rule("64 hex digits", re.compile(r"[0-9A-Fa-f]{64}").fullmatch)


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
    result: Json = attrs.field(default=None, metadata={_ANYTHING: True})
    error: dict[str, Json] | None = None


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
    dimensions: dict[str, Json] | None = None


@attrs.frozen(kw_only=True)
class ArtifactRef:
    """Something the job has made, kept elsewhere."""

    uri: str = attrs.field(metadata=_NON_EMPTY)
    content_type: str = attrs.field(metadata=_NON_EMPTY)
    byte_size: int | None = attrs.field(default=None, metadata=_NON_NEGATIVE)
    sha256: str | None = attrs.field(default=None, metadata=_SHA256)


@attrs.frozen(kw_only=True)
class Delegate:
    """Part of the work goes to another agent, with part of the lease (§10)."""

    delegate_id: str = attrs.field(metadata=_NON_EMPTY)
    agent: str = attrs.field(metadata=_NON_EMPTY)
    input: Json = None
    lease_request: dict[str, Json] | None = None
    lease_constraints: dict[str, Json] | None = None


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
    """Name the feature that a session must have negotiated to be sent events of this kind."""
    return _FEATURES.get(kind)


# --- encoding --------------------------------------------------------------------------------


def encode_event(kind: str, body: Mapping[str, Json], ts: str) -> bytes:
    """Encode the payload of a `job.event`; `InvalidEvent` says why it may not be one.

    An optional field that is None is left out. `ts` is put in as it stands.
    """
    body = check_body(kind, body)
    try:
        # The body stands two levels below the frame, whose depth peers bound.
        encoded = dumps(body, max_depth=MAX_DEPTH - 2)
    except ValueError as error:
        raise InvalidEvent(f"{kind}: {error}") from None
    return b'{"kind":"%b","ts":"%b","body":%b}' % (kind.encode(), ts.encode(), encoded)


def read_body(kind: str, body: Json) -> Body:
    """Make the object of a body of §8.2; `InvalidEvent` if it is not one of that kind."""
    checked = check_body(kind, body)
    cls = KINDS[kind]
    return cls(**{f.name: checked[f.name] for f in attrs.fields(cls) if f.name in checked})


def check_body(kind: str, body: Json) -> dict[str, Json]:
    """Take a body as it may be sent under this kind; `InvalidEvent` if it may not."""
    checked: dict[str, Json] = body if body.__class__ is dict else _copy_mapping(kind, body)
    fields = _SCHEMA.get(kind)
    if fields is None:
        _check_vendor_kind(kind)
        return checked
    for name, types, required, rule, expected in fields:
        value = checked.get(name)
        if value is None:
            if required:
                raise InvalidEvent(f"{kind}: expected {expected} @ $.{name}")
            if name in checked:
                checked = {key: item for key, item in checked.items() if key != name}
        elif types is not None and not _fits(value, types, rule):
            raise InvalidEvent(f"{kind}: expected {expected} @ $.{name}")
    check = _WHOLE_BODY.get(kind)
    return checked if check is None else check(checked)


def _fits(value: Json, types: frozenset[type], rule: _Rule | None) -> bool:
    if value.__class__ not in types and plain(value).__class__ not in types:
        return False
    return rule is None or bool(rule(value))


def _copy_mapping(kind: str, body: object) -> dict[str, Json]:
    if not isinstance(body, Mapping):
        raise InvalidEvent(f"{clip(kind)}: expected an object @ $")
    return dict(cast("Mapping[str, Json]", body))


def _check_vendor_kind(kind: str) -> None:
    if len(kind) > _MAX_KIND or _VENDOR_KIND.fullmatch(kind) is None:
        raise InvalidEvent(
            f"unknown kind {clip(repr(kind))}: a kind of §8.2, or x-vendor.<vendor>.<name>"
        )


def _check_tool_result(body: dict[str, Json]) -> dict[str, Json]:
    error = body.get("error")
    if error is None:
        if "result" not in body:  # null is a result, too
            raise InvalidEvent("tool_result: expected one of result and error @ $")
        return body
    if body.get("result") is not None:
        raise InvalidEvent("tool_result: expected only one of result and error @ $")
    code = error.get("code")
    if not isinstance(code, str) or code not in CODES:
        raise InvalidEvent("tool_result: expected a code of §12 @ $.error.code")
    for name, kind in (("message", str), ("retryable", bool)):
        if not isinstance(error.get(name), kind):
            raise InvalidEvent(f"tool_result: expected {_TYPE_NAMES[kind]} @ $.error.{name}")
    return {key: item for key, item in body.items() if key != "result"}


REMAINING = "cost.budget.remaining"
"""The metric that tells what is left of a budget, which may be less than nothing; it is no cost."""


def _check_metric(body: dict[str, Json]) -> dict[str, Json]:
    if body["value"] < 0 and body["name"].startswith("cost.") and body["name"] != REMAINING:
        raise InvalidEvent("metric: expected a cost that is not negative @ $.value")
    return body


_WHOLE_BODY: Mapping[str, Callable[[dict[str, Json]], dict[str, Json]]] = {
    "tool_result": _check_tool_result,
    "metric": _check_metric,
}


# --- the schema, as the check wants it -------------------------------------------------------

# name, accepted types (None: any JSON value), required, rule, what is expected
_Field: TypeAlias = tuple[str, frozenset[type] | None, bool, _Rule | None, str]

_TYPE_NAMES = {str: "a string", bool: "a boolean", int: "an integer", dict: "an object"}


def _schema_of(cls: type[Body]) -> tuple[_Field, ...]:
    hints = get_type_hints(cls)
    fields = (field for field in attrs.fields(cls) if not field.metadata.get(_ANYTHING))
    return tuple(_field_of(field, hints[field.name]) for field in fields)


def _field_of(field: attrs.Attribute[Any], hint: Json) -> _Field:
    required = field.default is attrs.NOTHING
    if hint is Any:
        return (field.name, None, required, None, "a value")
    accepted = [getattr(kind, "__origin__", kind) for kind in _alternatives(hint)]
    types = frozenset(accepted) - {type(None)}
    rule = field.metadata.get(_RULE)
    if Decimal in types:
        expected, rule = "a finite number", _finite_and(rule)
    else:
        expected = _TYPE_NAMES[next(iter(types))]
    return (field.name, types, required, rule, field.metadata.get(_EXPECTED, expected))


def _alternatives(hint: Json) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def _finite_and(rule: _Rule | None) -> _Rule:
    return lambda number: is_finite(number) and (rule is None or bool(rule(number)))


_SCHEMA: Mapping[str, tuple[_Field, ...]] = {kind: _schema_of(cls) for kind, cls in KINDS.items()}
