"""How the log looks to an operator: one fact, one line; what it is about stands in fields.

The runtime only makes standard logging calls: a short message, and its fields in `extra`. Only
`serve` says where they go; a program of one's own does as it likes, also with these formatters.
"""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Callable
from typing import Final, TextIO

from arcp_trio.wire.timestamps import rfc3339

_NOISY: Final = ("trio-websocket", "wsproto", "h11")
"""Libraries whose everyday news are for whoever debugs them."""

_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
}
_PLAIN: Final = re.compile(r"[\w./:@+*%~-]+")
_UNSEEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""What ends a line somewhere, steers a terminal, turns text round, or is no character at all."""


def set_up(
    level: str, style: str, kind: Callable[[TextIO], logging.Handler] = logging.StreamHandler
) -> None:
    """Send the process's log to standard error, in UTF-8: `text` for people, or `json`."""
    _have_whole_lines(sys.stderr)
    handler = kind(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper())
    if level in ("info", "warning"):
        for name in _NOISY:
            logging.getLogger(name).setLevel(logging.WARNING)


def _have_whole_lines(stream: TextIO) -> None:
    """In UTF-8; and a line that is printed in pieces does not get another one in between."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(
            encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=False
        )


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The `extra` of a log call, without what had nothing to say."""
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _OF_EVERY_RECORD and value is not None
    }


class JsonFormatter(logging.Formatter):
    """An object per line: `ts`, `level`, `logger`, `event`, the fields, perhaps `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line, whatever is in it."""
        known: dict[str, object] = {
            "ts": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if trace := _trace(self, record):
            known["exception"] = trace
        return visible(_json({**known, **fields_of(record), **known}))


class TextFormatter(logging.Formatter):
    """For people: when, how bad, who, what, and behind it the fields as `name=value`.

    A traceback follows in lines of its own, behind bars: nothing in it can pass for another fact.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line, and its traceback."""
        said = visible(record.getMessage())
        fields = "".join(f" {name}={_value(it)}" for name, it in fields_of(record).items())
        when, level = rfc3339(record.created), record.levelname.lower()
        trace = "".join(f"\n  | {visible(line)}" for line in _trace(self, record).splitlines())
        return f"{when} {level:7} {record.name}: {said}{fields}{trace}"


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)


def _value(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if _PLAIN.fullmatch(text) else visible(json.dumps(text, ensure_ascii=False))


def _json(line: dict[str, object]) -> str:
    try:
        return json.dumps(line, ensure_ascii=False, allow_nan=False, default=str)
    except (TypeError, ValueError):  # a field that is no JSON in a way of its own: nan, a cycle
        return json.dumps({name: str(value) for name, value in line.items()}, ensure_ascii=False)


def visible(text: str) -> str:
    """The text with what cannot be seen written out, as JSON would."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
