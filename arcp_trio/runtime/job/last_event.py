"""The last event of a job, in words for a listing, and how far the job is."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, cast

from arcp_trio.store.records import HOLES, Entry
from arcp_trio.wire.event_bodies import (
    KINDS,
    ArtifactRefBody,
    Body,
    DelegateBody,
    LogBody,
    MetricBody,
    ProgressBody,
    ResultChunkBody,
    StatusBody,
    ThoughtBody,
    ToolCallBody,
    ToolResultBody,
)
from arcp_trio.wire.events import REMAINING, read_body
from arcp_trio.wire.json import JsonLike, JsonObject, loads_exact, object_in
from arcp_trio.wire.messages import ProgressBrief
from arcp_trio.wire.payloads import read
from arcp_trio.wire.plain_text import one_line
from arcp_trio.wire.questions import QUESTION

MOST_CHARACTERS: Final = 200
KEPT_BYTES: Final = 2_048
"""A larger event is put into words at once, so that what is kept for each job is little."""


class LastEvent:
    """Remembers a job's last event; it is put into words when they are asked for."""

    def __init__(self) -> None:
        self._payload: bytes | None = None
        self._words: str | None = None
        self._progress: dict[str, JsonLike] | None = None

    def note(self, kind: str, body: Mapping[str, JsonLike], payload: bytes) -> None:
        """Note an event, and its encoded payload."""
        if kind == "progress":
            self._progress = {name: body.get(name) for name in ("current", "total")}
        if len(payload) <= KEPT_BYTES:
            self._payload = payload
        else:
            self._payload, self._words = None, in_words(kind, body)

    @property
    def words(self) -> str | None:
        """The event in words; None before the first."""
        if self._payload is None:
            return self._words
        event = loads_exact(self._payload)
        return in_words(str(event["kind"]), event["body"])

    @property
    def progress(self) -> ProgressBrief | None:
        """How far the job is, as it said last."""
        if self._progress is None:
            return None
        return read(ProgressBrief, cast("JsonObject", self._progress), root="$")


def told_by(entry: Entry) -> str | None:
    """Put a stored event into words; None for what is never a job's last event."""
    if entry.terminal or entry.child is not None or entry.tail[0] == HOLES:
        return None
    event = object_in(loads_exact(b"{" + entry.tail[1:])["payload"])
    kind, body = str(event["kind"]), object_in(event["body"])
    told_by_runtime = kind == "metric" and body.get("name") == REMAINING
    return None if kind == "result_chunk" or told_by_runtime else in_words(kind, body)


def in_words(kind: str, body: JsonLike) -> str:
    """Put an event into one line of plain text."""
    if kind == QUESTION and isinstance(body, Mapping):
        return one_line(f"asks: {body['prompt']}", MOST_CHARACTERS)
    return one_line(_told(read_body(kind, body)) if kind in KINDS else kind, MOST_CHARACTERS)


def _told(body: Body) -> str:  # noqa: C901 - a case for each kind
    match body:
        case LogBody(level="info", message=text) | ThoughtBody(text=text):
            return text
        case LogBody():
            return f"{body.level}: {body.message}"
        case StatusBody():
            return body.phase if body.message is None else f"{body.phase}: {body.message}"
        case ToolCallBody():
            return f"calls {body.tool}"
        case ToolResultBody(error=dict() as error):
            return f"a tool has failed: {error['code']}: {error['message']}"
        case ToolResultBody():
            return "a tool has answered"
        case MetricBody():
            return f"{body.name} {_number(body.value)} {body.unit or ''}"
        case ArtifactRefBody():
            return f"made {body.uri}"
        case DelegateBody():
            return f"delegates to {body.agent}"
        case ProgressBody():
            total = "" if body.total is None else f"/{_number(body.total)}"
            return f"{_number(body.current)}{total} {body.units or ''} {body.message or ''}"
        case ResultChunkBody():
            return "result_chunk"


def _number(value: float | Decimal) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(value)
