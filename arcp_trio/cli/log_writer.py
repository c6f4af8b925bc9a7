"""A log handler with a thread of its own: a reader of the log that is slow delays nothing else."""

from __future__ import annotations

import logging
import queue
import threading
from contextlib import suppress
from typing import Final, TextIO

MOST_LINES: Final = 10_000
"""The number of lines that may wait; past it lines are lost, and their number is logged."""

FLUSH_SECONDS: Final = 1.0
"""The time for which `flush` waits until the lines are written."""


class LogWriter(logging.Handler):
    """A handler whose thread writes the lines, in order, to a stream that may block.

    A pipe that is not read is soon full, and a write to it would block the event loop, and with it
    every job.
    """

    def __init__(self, stream: TextIO, most: int = MOST_LINES) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | threading.Event] = queue.Queue(most)
        """Lines to write, and events to set when the lines before them are written."""
        self._lost = 0
        self._counting = threading.Lock()
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line of a record, if there is room."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - as every handler of the standard library does
            self.handleError(record)
            return
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            with self._counting:
                self._lost += 1

    def flush(self) -> None:
        """Wait until the lines so far are written, but at most `FLUSH_SECONDS` for each step."""
        written = threading.Event()
        with suppress(queue.Full):  # the stream is blocked
            self._lines.put(written, timeout=FLUSH_SECONDS)
            written.wait(FLUSH_SECONDS)

    def _write(self) -> None:
        with suppress(OSError, ValueError):  # the other end of the stream is closed for good
            while True:
                line = self._lines.get()
                if isinstance(line, threading.Event):
                    line.set()
                    continue
                self._stream.write(f"{line}\n")
                self._stream.flush()
                self._report_lost()

    def _report_lost(self) -> None:
        with self._counting:
            lost, self._lost = self._lost, 0
        if lost:
            facts = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING"}
            facts |= {"msg": "lines lost: the log was not read", "lines": lost}
            self._stream.write(f"{self.format(logging.makeLogRecord(facts))}\n")


def log_writer(stream: TextIO) -> LogWriter:
    """Return a handler that writes to the file of `stream`, through a buffer of its own.

    So its lines stay whole, and those that others write to `stream` come between them.
    """
    own = open(  # noqa: SIM115 - open until the process ends
        stream.fileno(),
        "w",
        buffering=1,
        encoding="utf-8",
        errors="backslashreplace",
        closefd=False,
    )
    return LogWriter(own)
