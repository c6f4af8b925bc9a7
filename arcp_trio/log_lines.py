"""Lines of the log: one for each fact, with its details in fields.

The package only makes standard logging calls, with a short message and its fields in `extra`. The
command line says where they are written. Another program decides this for itself, and may use the
formatters of this module. In a program that sets up no logging, `LogFallback` writes warnings and
errors.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import Final, TextIO

from arcp_trio.wire.timestamps import rfc3339

_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
}
_NEEDS_NO_QUOTES: Final = re.compile(r"[\w./:@+*%~-]+")
_UNSEEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Characters that end a line, control a terminal or reverse text, and surrogates."""


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


class LogFallback(logging.StreamHandler[TextIO]):
    """Writes warnings and errors to standard error while the program has set up no logging.

    Python itself would write only the message of a record, and neither its job nor its reason.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setLevel(logging.WARNING)
        self.setFormatter(TextFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless a handler of the program has it."""
        if self._is_alone(record.name):
            self.stream = sys.stderr  # another one by now, perhaps, and the one before is closed
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Lose a record that cannot be written: standard error is where that would be said."""

    def _is_alone(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True
