"""Writes the log beside everything else: whoever does not read it holds up nothing."""

from __future__ import annotations

import logging
import queue
import threading
from contextlib import suppress
from typing import Final, TextIO

MOST_LINES: Final = 10_000
"""That may wait to be written; past it they are counted, and the count is told."""

FLUSH_SECONDS: Final = 1.0
"""How long is waited for lines to be written, where that is waited for."""


class LogWriter(logging.Handler):
    """Has a thread of its own write the lines, in order, to a stream that may be stuck.

    A pipe that nobody reads is full soon: to wait for it would be to stop every job.
    """

    def __init__(self, stream: TextIO, most: int = MOST_LINES) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | threading.Event] = queue.Queue(most)
        """And events, to be set when what stands before them is written."""
        self._lost = 0
        self._counting = threading.Lock()
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Put a record's line behind the others, if there is room."""
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
        """Wait, but not for long, until what was logged is written."""
        written = threading.Event()
        with suppress(queue.Full):  # then it is stuck, and stays so
            self._lines.put(written, timeout=FLUSH_SECONDS)
            written.wait(FLUSH_SECONDS)

    def _write(self) -> None:
        with suppress(OSError, ValueError):  # nobody will ever read it
            while True:
                line = self._lines.get()
                if isinstance(line, threading.Event):
                    line.set()
                    continue
                self._stream.write(f"{line}\n")
                self._stream.flush()
                self._tell_what_is_lost()

    def _tell_what_is_lost(self) -> None:
        with self._counting:
            lost, self._lost = self._lost, 0
        if lost:
            facts = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING"}
            facts |= {"msg": "lines lost: nobody read the log", "lines": lost}
            self._stream.write(f"{self.format(logging.makeLogRecord(facts))}\n")


def beside(stream: TextIO) -> LogWriter:
    """Write to where `stream` leads, in whole lines: what others print comes between them."""
    own = open(  # noqa: SIM115 - open as long as the process
        stream.fileno(),
        "w",
        buffering=1,
        encoding="utf-8",
        errors="backslashreplace",
        closefd=False,
    )
    return LogWriter(own)
