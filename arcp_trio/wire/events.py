"""The strict encoding of what an agent emits, as an event of §8.2.

`encode_event` runs once for every event of every job, so it checks a body without making an object
of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Annotated, Any, Final, cast

import attrs

from arcp_trio.wire.errors import CODES, clip
from arcp_trio.wire.event_bodies import KINDS, Body, Number
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import MAX_DEPTH, JsonLike, JsonObject, JsonValue, dumps, is_object
from arcp_trio.wire.questions import QUESTION
from arcp_trio.wire.rules import Rule
from arcp_trio.wire.schema import described, schema_of

_DIGEST_BYTES: Final = 12
"""Few, as there may be millions of digests, and enough for no two events of a job to be alike."""


class InvalidEvent(ValueError):  # noqa: N818 - it reads as the refusal it is
    """An event that an agent may not emit; the message names the path and the reason."""


_SCHEMAS: Final = {kind: schema_of(cls) for kind, cls in KINDS.items()}

_VENDOR_KIND: Final = re.compile(r"x-vendor(?:\.[A-Za-z0-9_-]+){2,}")
_MAX_KIND: Final = 128  # characters

_FEATURES: Final[Mapping[str, str]] = {
    "progress": Feature.PROGRESS,
    "result_chunk": Feature.RESULT_CHUNK,
    QUESTION: Feature.QUESTIONS,
}


def feature_of(kind: str, body: Mapping[str, JsonLike]) -> str | None:
    """Return the feature that a session must have negotiated to be sent this event."""
    if kind == "metric" and body["name"] == REMAINING:
        return Feature.COST_BUDGET
    return _FEATURES.get(kind)


# --- encoding --------------------------------------------------------------------------------


def encode_event(kind: str, body: Mapping[str, JsonLike], ts: str) -> bytes:
    """Encode the payload of a `job.event`; optional fields that are None are left out.

    Args:
        ts: is put in as it stands.

    Raises:
        InvalidEvent: the kind or the body is not as §8.2 has it.
    """
    checked = check_body(kind, body)
    try:
        # The body stands two levels below the frame, whose depth peers bound.
        encoded = dumps(checked, max_depth=MAX_DEPTH - 2)
    except ValueError as error:
        raise InvalidEvent(f"{kind}: {error}") from None
    return b'{"kind":"%b","ts":"%b","body":%b}' % (kind.encode(), ts.encode(), encoded)


def digest(event: bytes) -> bytes:
    """Return what is the same for two events with the same kind and body, and for no two others.

    Args:
        event: as `encode_event` returns it.
    """
    kind_ends = event.index(b'"', len(b'{"kind":"'))
    return blake2b(
        event[:kind_ends] + event[event.index(b'"body":', kind_ends) :], digest_size=_DIGEST_BYTES
    ).digest()


def read_body(kind: str, body: object) -> Body:
    """Make the object of a body of §8.2; `InvalidEvent` if it is not one of that kind."""
    checked = check_body(kind, body)
    cls = KINDS[kind]
    found: dict[str, Any] = {
        f.name: checked[f.name] for f in attrs.fields(cls) if f.name in checked
    }
    return cls(**found)


def check_body(kind: str, body: object) -> JsonObject:
    """Return a body as it may be sent under this kind; `InvalidEvent` if it may not be sent."""
    exact = body.__class__ is dict  # a subclass is not JSON
    fields = cast("JsonObject", body) if exact else _copy_mapping(kind, body)
    schema = _SCHEMAS.get(kind)
    if schema is None:
        _check_vendor_kind(kind)
        return fields
    checked = schema.checked(fields)
    if checked is None:
        raise InvalidEvent(f"{kind}: {next(described(schema.problems(fields), '$'))}")
    check = _WHOLE_BODY.get(kind)
    return checked if check is None else check(checked)


def _copy_mapping(kind: str, body: object) -> JsonObject:
    if not isinstance(body, Mapping):
        raise InvalidEvent(f"{clip(kind)}: expected an object @ $")
    return dict(cast("Mapping[str, JsonValue]", body))


def _check_vendor_kind(kind: str) -> None:
    if len(kind) > _MAX_KIND or _VENDOR_KIND.fullmatch(kind) is None:
        raise InvalidEvent(
            f"unknown kind {clip(repr(kind))}: a kind of §8.2, or x-vendor.<vendor>.<name>"
        )


@attrs.frozen
class _ToolError:
    """The `error` of a tool result, as §12 has it."""

    code: Annotated[str, Rule("a code of §12", CODES.__contains__)]
    message: str
    retryable: bool


_TOOL_ERROR: Final = schema_of(_ToolError)


def _check_tool_result(body: JsonObject) -> JsonObject:
    error = body.get("error")
    if error is None:
        if "result" not in body:
            raise InvalidEvent("tool_result: expected one of result and error @ $")
        return body
    if body.get("result") is not None:
        raise InvalidEvent("tool_result: expected only one of result and error @ $")
    assert is_object(error), "its class is known"
    if _TOOL_ERROR.checked(error) is None:
        problem = next(described(_TOOL_ERROR.problems(error), "$.error"))
        raise InvalidEvent(f"tool_result: {problem}")
    return {k: v for k, v in body.items() if k != "result"} if "result" in body else body


REMAINING: Final = "cost.budget.remaining"
"""The metric that tells what is left of a budget. Not being a cost, it may be negative."""


def _check_metric(body: JsonObject) -> JsonObject:
    value, name = body["value"], body["name"]
    assert isinstance(value, Number) and isinstance(name, str), "their classes are known"  # noqa: PT018
    if value < 0 and name.startswith("cost.") and name != REMAINING:
        raise InvalidEvent("metric: expected a cost that is not negative @ $.value")
    return body


_WHOLE_BODY: Final[Mapping[str, Callable[[JsonObject], JsonObject]]] = {
    "tool_result": _check_tool_result,
    "metric": _check_metric,
}
