"""How the log looks to an operator: one line for each fact, with its details in fields.

The runtime only makes standard logging calls, with a short message and its fields in `extra`. The
command line says where they are written. Another program decides this for itself, and may use the
formatters of this module.
"""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from arcp_trio.wire.timestamps import rfc3339

_NOISY: Final = ("trio-websocket", "wsproto", "h11")
"""Libraries whose info messages matter only to those who debug them."""

_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
}
_GREETED: Final = frozenset({"runtime started", "accepting connections"})
"""What `serve` says on a terminal in its own words."""
_NEEDS_NO_QUOTES: Final = re.compile(r"[\w./:@+*%~-]+")
_UNSEEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Characters that end a line, control a terminal or reverse text, and surrogates."""


def set_up(
    level: str,
    style: str,
    make_handler: Callable[[TextIO], logging.Handler] = logging.StreamHandler,
) -> None:
    """Send the log of the process to standard error: as `text`, `short` or `json`."""
    _write_whole_lines(sys.stderr)
    handler = make_handler(sys.stderr)
    handler.setFormatter(_FORMATTERS[style]())
    if style == "short":
        handler.addFilter(lambda record: record.getMessage() not in _GREETED)
    logging.basicConfig(handlers=[handler], level=level.upper())
    if level in ("info", "warning"):
        for name in _NOISY:
            logging.getLogger(name).setLevel(logging.WARNING)


def _write_whole_lines(stream: TextIO) -> None:
    """Make a stream write UTF-8, and only whole lines, also if they are printed in pieces."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(
            encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=False
        )


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the `extra` of a log call, without the fields that are None."""
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _OF_EVERY_RECORD and value is not None
    }


class JsonFormatter(logging.Formatter):
    """An object per line: `ts`, `level`, `logger`, `event`, the fields, perhaps `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line, whatever is in it."""
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
    """Lines for people: time, level, logger, message, and the fields as `name=value`.

    A traceback follows in lines of its own with a bar before each, so that no text in it looks like
    another fact.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line, with the lines of its traceback."""
        said = visible(record.getMessage())
        fields = "".join(f" {name}={_value(it)}" for name, it in fields_of(record).items())
        when, level = rfc3339(record.created), record.levelname.lower()
        trace = "".join(f"\n  | {visible(line)}" for line in _trace(self, record).splitlines())
        return f"{when} {level:7} {record.name}: {said}{fields}{trace}"


class ShortFormatter(TextFormatter):
    """Lines for a terminal: the time of day, the message, its fields.

    What happens every day takes one line of the screen; a warning or an error is written out.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line, with the lines of its traceback."""
        said = super().format(record).partition(f" {record.name}: ")[2]
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        if record.levelno >= logging.WARNING:
            return f"{when} {record.levelname.lower()}: {said}"
        columns = shutil.get_terminal_size().columns
        line = f"{when} {said}"
        return line if len(line) <= columns else f"{line[: columns - 1]}…"


_FORMATTERS: Final = {"text": TextFormatter, "short": ShortFormatter, "json": JsonFormatter}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)


def _value(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    if _NEEDS_NO_QUOTES.fullmatch(text):
        return text
    return visible(json.dumps(text, ensure_ascii=False))


def _json(line: dict[str, object]) -> str:
    try:
        return json.dumps(line, ensure_ascii=False, allow_nan=False, default=str)
    except (TypeError, ValueError):  # a field is not JSON, such as nan or a cycle
        return json.dumps({name: str(value) for name, value in line.items()}, ensure_ascii=False)


def visible(text: str) -> str:
    """Return the text with each character that cannot be seen escaped as in JSON."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
