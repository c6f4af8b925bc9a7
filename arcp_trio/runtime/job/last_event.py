"""The last event of a job, in words for a listing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from arcp_trio.wire.json import Json, loads_exact
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

    def note(self, kind: str, body: Mapping[str, Json], payload: bytes) -> None:
        """Note an event, and its encoded payload."""
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
        return in_words(event["kind"], event["body"])


def in_words(kind: str, body: Mapping[str, Json]) -> str:
    """Put an event into one line of plain text."""
    tell = _TELLERS.get(kind)
    return one_line(kind if tell is None else tell(body), MOST_CHARACTERS)


def _log(body: Mapping[str, Json]) -> str:
    level: str = body["level"]
    return body["message"] if level == "info" else f"{level}: {body['message']}"


def _status(body: Mapping[str, Json]) -> str:
    phase: str = body["phase"]
    return phase if body.get("message") is None else f"{phase}: {body['message']}"


def _tool_result(body: Mapping[str, Json]) -> str:
    error = body.get("error")
    if error is None:
        return "a tool has answered"
    return f"a tool has failed: {error['code']}: {error['message']}"


def _metric(body: Mapping[str, Json]) -> str:
    return f"{body['name']} {_number(body['value'])} {body.get('unit') or ''}"


def _progress(body: Mapping[str, Json]) -> str:
    total = body.get("total")
    done = _number(body["current"]) + ("" if total is None else f"/{_number(total)}")
    return f"{done} {body.get('units') or ''} {body.get('message') or ''}"


def _number(value: float | Decimal) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(value)


_TELLERS: Final[Mapping[str, Callable[[Mapping[str, Json]], str]]] = {
    "log": _log,
    "thought": lambda body: body["text"],
    "status": _status,
    "tool_call": lambda body: f"calls {body['tool']}",
    "tool_result": _tool_result,
    "metric": _metric,
    "artifact_ref": lambda body: f"made {body['uri']}",
    "delegate": lambda body: f"delegates to {body['agent']}",
    QUESTION: lambda body: f"asks: {body['prompt']}",
    "progress": _progress,
}
