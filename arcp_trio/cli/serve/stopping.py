"""How a signal ends `serve`: in order the first time, at once the second."""

from __future__ import annotations

import os
import queue
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final, NoReturn

import trio

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Leave = Callable[[int], NoReturn]
"""Ends the process at once with an exit code."""


class LastResort:
    """Ends the process with exit code 0 when an orderly end takes too long.

    A thread of its own: neither an agent that blocks the event loop nor one that sits in a thread,
    which the interpreter would wait for on its way out, can hold it up.
    """

    def __init__(self, leave: Leave = os._exit) -> None:
        self._leave = leave
        self._deadlines: queue.SimpleQueue[float] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="last resort", daemon=True).start()

    def exit_within(self, seconds: float) -> None:
        """Set a deadline; the earliest counts. May be called from a signal handler."""
        self._deadlines.put(time.monotonic() + seconds)

    def _watch(self) -> None:
        deadline = self._deadlines.get()
        while (left := deadline - time.monotonic()) > 0:
            try:
                another = self._deadlines.get(timeout=min(left, threading.TIMEOUT_MAX))
            except queue.Empty:
                continue
            deadline = min(deadline, another)
        # Nothing is left to flush: standard error goes out line by line, and standard output had
        # its one line.
        _say(b"an agent, or the store, does not stop: leaving without it\n")
        self._leave(0)


def _say(line: bytes) -> None:
    """Write to standard error, past sys.stderr, whose lock may be held by what does not end.

    Not if nobody reads there, or reads no further: that may be just what everything waits for.
    """
    with suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, line)


def on_signal(react: Callable[[], None], leave: Leave = os._exit) -> trio.Event:
    """Return an event that SIGTERM or SIGINT sets, after `react`; a second one leaves at once."""
    stop = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def first(_number: int, _frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, second)
        react()
        token.run_sync_soon(stop.set)

    def second(number: int, _frame: FrameType | None) -> None:
        leave(128 + number)

    for each in _SIGNALS:
        signal.signal(each, first)
    return stop
