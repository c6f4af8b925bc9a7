"""A job's events in words for people: lines that stay, and the live line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final, TypeGuard

from arcp_trio import Event
from arcp_trio.cli.client.lease_advice import asking_options, joined_pattern, missing_options
from arcp_trio.cli.client.purse import Purse
from arcp_trio.cli.text import fitted, safe_line, safe_lines
from arcp_trio.wire.events import REMAINING
from arcp_trio.wire.json import JsonObject, JsonValue, dumps, is_object
from arcp_trio.wire.questions import APPROVAL, QUESTION

_WIDE: Final = 60
_BAR: Final = 20
_NARROW_BAR: Final = 10
_MOST_CALLS: Final = 100
"""The number of tool calls without a result, and of delegations, that are remembered."""
_MOST_MISSING: Final = 5
"""The options that are named of those that the lease lacks."""
_MOST_JSON: Final = 200
_REFUSED: Final = "delegation refused"

_LEVEL_COLOURS: Final = {
    "trace": "dim",
    "debug": "dim",
    "warn": "yellow",
    "error": "red",
    "critical": "red",
}
COLOURS: Final = {"dim": "2", "red": "31", "yellow": "33", "cyan": "36"}


def paint(text: str, colour: str | None, *, colours: bool) -> str:
    """Return a text in a colour, if `colours` are wanted."""
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if colours and colour else text


class Teller:
    """Tells what happens in one job.

    Events may have any content, since an agent has made them. The lines are safe on a terminal.
    """

    def __init__(self, *, live: bool, colours: bool, shorten: Callable[[str], str] = str) -> None:
        """Tell it with or without a live line, and with colours or without.

        Args:
            shorten: makes a line fit that is worth one line of the screen at most.
        """
        self._live = live
        self._colours = colours
        self._shorten = shorten
        self._progress: JsonObject = {}
        self._percent: int | None = None
        self._status = ""
        self._approving = False
        """Whether the status is that a call waits for an approval."""
        self._tools: dict[str, str] = {}
        self._delegations: dict[str, str] = {}
        self._lease: Mapping[str, JsonValue] = {}
        self._purse = Purse()
        self._missing: dict[str, None] = {}
        """The options of `submit` that the lease lacks, in the order in which this was found."""
        self._joined: str | None = None
        """A pattern of the lease that was meant to be several."""
        self._streamed = 0
        self._tellers: dict[str, Callable[[JsonObject], list[str]]] = {
            "log": self._log,
            "thought": lambda body: self._line("thought", _text(body, "text").strip(), "dim"),
            "status": self._note_status,
            "progress": self._note_progress,
            "tool_call": self._note_call,
            "tool_result": self._note_result,
            "metric": self._metric,
            "artifact_ref": lambda body: self._line("artifact", _artifact(body)),
            "delegate": self._note_delegation,
            "result_chunk": self._note_chunk,
            QUESTION: lambda _: [],  # it is asked
        }

    def lease(self, lease: Mapping[str, JsonValue]) -> None:
        """Note what the job may do."""
        self._lease = lease

    def budget(self, granted: Mapping[str, Decimal], left: Mapping[str, Decimal]) -> None:
        """Note what the job may spend, and what is left of it, by currency."""
        self._purse.fill(granted, left)

    def tell(self, event: Event) -> list[str]:
        """Note an event, and return the lines that tell of it."""
        teller = self._tellers.get(event.kind)
        body: JsonValue = event.body
        if teller is None or not is_object(body):
            return self._line(event.kind or "event", _compact(body), "dim")
        return teller(body)

    def live_line(self, columns: int) -> str:
        """Return what goes on just now, in less than `columns`; empty if nothing is known."""
        parts = [self._bar(columns), *self._purse.left(), self._status, self._calling()]
        if self._streamed:
            parts.append(f"result: {self._streamed:,} characters")
        text = fitted("  ".join(part for part in parts if part), columns - 1)
        return paint(text, "cyan", colours=self._colours) if text else ""

    def closing(self) -> list[str]:
        """Return the last lines: what the live line had of money, and what the lease lacked."""
        lines = [self._shorten(text) for text in self._purse.left()] if self._live else []
        if self._missing:
            lines += self._line("the lease lacks", " ".join(self._missing), "yellow")
        if asks := asking_options(self._missing):
            lines += self._line("or, to be asked first", " ".join(asks), "yellow")
        if self._joined is not None:
            said = f"{self._joined} is one pattern; give --lease once for each"
            lines += self._line("the lease", said, "yellow")
        return lines

    def refused(self, error: JsonObject) -> None:
        """Note an error of the job, or of one of its operations."""
        code, details = _text(error, "code"), error.get("details")
        self._joined = self._joined or joined_pattern(code, details, self._lease)
        for option in missing_options(code, details, self._lease):
            if len(self._missing) < _MOST_MISSING:
                self._missing[option] = None

    # -- lines

    def _line(self, label: str, text: str, colour: str | None = None) -> list[str]:
        first, *others = safe_lines(text)
        lines = [f"{safe_line(label)}: {first}", *(f"  {line}" for line in others)]
        return [paint(line, colour, colours=self._colours) for line in lines]

    def _short(self, label: str, text: str) -> list[str]:
        return [self._shorten(safe_line(f"{label}: {text}"))]

    def _passing(self, label: str, text: str) -> list[str]:
        """Return a line for what the live line shows, if there is no live line."""
        return [] if self._live else self._line(label, text)

    def _log(self, body: JsonObject) -> list[str]:
        level = _text(body, "level")
        return self._line(level or "log", _text(body, "message"), _LEVEL_COLOURS.get(level))

    def _metric(self, body: JsonObject) -> list[str]:
        name, unit = _text(body, "name"), _text(body, "unit")
        value = body.get("value")
        if name == REMAINING and _is_number(value):
            return self._passing("budget", self._purse.note_left(unit, Decimal(str(value))))
        shown = _shown(value)
        return self._line("metric", f"{name} {shown} {unit}".rstrip(), "dim")

    def _note_status(self, body: JsonObject) -> list[str]:
        phase, message = _text(body, "phase"), _text(body, "message")
        self._approving = phase == APPROVAL
        self._status = safe_line(f"{phase}: {message}" if message else phase)
        return self._passing("status", self._status)

    def _note_call(self, body: JsonObject) -> list[str]:
        tool = _text(body, "tool")
        _remember(self._tools, _text(body, "call_id"), tool)
        return self._short("tool call", _with_value(tool, body.get("args")))

    def _note_delegation(self, body: JsonObject) -> list[str]:
        agent = _text(body, "agent")
        _remember(self._delegations, _text(body, "delegate_id"), agent)
        return self._short("delegating to", _with_value(agent, body.get("input")))

    def _note_result(self, body: JsonObject) -> list[str]:
        call_id = _text(body, "call_id")
        tool, agent = self._tools.pop(call_id, ""), self._delegations.pop(call_id, None)
        error = body.get("error")
        if self._approving:  # the result tells of the decision
            self._approving, self._status = False, ""
        if not is_object(error):
            return self._short("tool result", f"{tool} {_compact(body.get('result'))}".lstrip())
        code, message = _text(error, "code"), _text(error, "message")
        self.refused(error)
        if agent is None:
            return self._line("tool failed", f"{tool} {code}: {message}".lstrip(), "yellow")
        why = message.removeprefix(f"{_REFUSED}: agent {agent}: ")
        return self._line(_REFUSED, f"agent {agent}: {why} ({code})", "yellow")

    def _note_chunk(self, body: JsonObject) -> list[str]:
        self._streamed += len(_text(body, "data"))
        return []

    def _note_progress(self, body: JsonObject) -> list[str]:
        self._progress = body
        percent = _percent(body)
        # A line for each percent, since there may be a hundred thousand steps.
        if percent is not None and percent == self._percent:
            return []
        self._percent = percent
        return self._passing("progress", _progress(body))

    # -- the live line

    def _bar(self, columns: int) -> str:
        if not self._progress:
            return ""
        percent = _percent(self._progress)
        text = safe_line(_progress(self._progress))
        if percent is None:
            return text
        width = _BAR if columns >= _WIDE else _NARROW_BAR
        full = width * percent // 100
        return f"[{'#' * full}{'-' * (width - full)}] {text}"

    def _calling(self) -> str:
        if not self._tools:
            return ""
        more = f" (+{len(self._tools) - 1})" if len(self._tools) > 1 else ""
        return f"tool {safe_line(next(reversed(self._tools.values())))}{more}"


def _remember(names: dict[str, str], call_id: str, name: str) -> None:
    names[call_id] = name
    if len(names) > _MOST_CALLS:
        del names[next(iter(names))]


def _with_value(name: str, value: JsonValue) -> str:
    return name if value is None else f"{name} {_compact(value)}"


def _text(body: JsonObject, name: str) -> str:
    value = body.get(name)
    if value is None:
        return ""
    return value if isinstance(value, str) else _compact(value)


def _compact(value: JsonValue) -> str:
    text = dumps(value).decode()
    return text if len(text) <= _MOST_JSON else f"{text[:_MOST_JSON]}…"


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: JsonValue) -> str:
    """Return a value as text; a number has no rounding error of a binary fraction."""
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return str(value) if _is_number(value) else safe_line(_compact(value))


def _percent(body: JsonObject) -> int | None:
    current, total = body.get("current"), body.get("total")
    if not (_is_number(current) and _is_number(total)):
        return None
    # Bounded before it becomes an int, since the quotient of two floats may be infinite.
    return int(max(0, min(100, 100 * current / total))) if total > 0 else 100


def _progress(body: JsonObject) -> str:
    text = _shown(body.get("current"))
    if body.get("total") is not None:
        text += f"/{_shown(body['total'])}"
    return " ".join(part for part in (text, _text(body, "units"), _text(body, "message")) if part)


def _artifact(body: JsonObject) -> str:
    about = [_text(body, "content_type")]
    if _is_number(body.get("byte_size")):
        about.append(f"{_shown(body['byte_size'])} bytes")
    return f"{_text(body, 'uri')} ({', '.join(about)})"
