"""The log of a command: on standard error, in the format that was asked for."""

from __future__ import annotations

import io
import logging
import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from arcp_trio.log_lines import JsonFormatter, TextFormatter

_NOISY: Final = {
    "trio-websocket": logging.WARNING,
    "wsproto": logging.WARNING,
    "h11": logging.WARNING,
    "psycopg": logging.ERROR,  # it warns of what it raises, too
}
"""Libraries, and the level below which their messages matter only to those who debug them."""

_GREETED: Final = frozenset({"runtime started", "accepting connections"})
"""What `serve` says on a terminal in its own words."""


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
        for name, least in _NOISY.items():
            logging.getLogger(name).setLevel(least)


def name_node(name: str) -> None:
    """Have each line of the log name the node, unless it names one by itself."""

    def add(record: logging.LogRecord) -> bool:
        record.__dict__.setdefault("node", name)
        return True

    for handler in logging.getLogger().handlers:
        handler.addFilter(add)


def _write_whole_lines(stream: TextIO) -> None:
    """Make a stream write UTF-8, and only whole lines, also if they are printed in pieces."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(
            encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=False
        )


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
