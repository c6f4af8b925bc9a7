"""How a signal ends `serve`: the first one in order, the second one at once."""

from __future__ import annotations

import logging
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

from arcp_trio.runtime.runtime import Runtime

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_STDERR: Final = 2

Leave = Callable[[int], NoReturn]
"""Ends the process at once with an exit code."""


class LastResort:
    """Ends the process if an orderly end takes too long.

    It waits in a thread of its own: an agent that blocks the event loop does not stop it, and an
    agent in a thread, which the interpreter joins before it exits, does not either.
    """

    def __init__(self, leave: Leave = os._exit) -> None:
        self._leave = leave
        self._exit_code = 0
        self.runtime: Runtime | None = None
        """The runtime whose end takes too long, once there is one."""
        self._deadlines: queue.SimpleQueue[float] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="last resort", daemon=True).start()

    def exit_within(self, seconds: float, exit_code: int = 0) -> None:
        """Set a deadline; the earliest one counts. A signal handler or a thread may call this."""
        self._exit_code = exit_code or self._exit_code
        self._deadlines.put(time.monotonic() + seconds)

    def leave_now(self) -> None:
        """End the process: the interpreter's own end fails if a thread reads standard input."""
        logging.shutdown()
        self._leave_it()

    def _watch(self) -> None:
        deadline = self._deadlines.get()
        while (left := deadline - time.monotonic()) > 0:
            try:
                another = self._deadlines.get(timeout=min(left, threading.TIMEOUT_MAX))
            except queue.Empty:
                continue
            deadline = min(deadline, another)
        self._leave_it()

    def _leave_it(self) -> None:
        # Nothing has to be flushed: standard error is written line by line, and the one line of
        # standard output was flushed when it was printed.
        why = "the start" if self.runtime is None else self.runtime.unfinished()
        _say(f"this takes too long: {why}; leaving without it\n".encode())
        self._leave(self._exit_code)


def _say(line: bytes) -> None:
    """Write to standard error without sys.stderr, whose lock a blocked thread may hold.

    If a write would block, do nothing: a full pipe may be what the process is blocked by.
    """
    with suppress(OSError):
        if select.select([], [_STDERR], [], 0)[1]:
            os.write(_STDERR, line)


def on_signal(react: Callable[[], None], leave: Leave = os._exit) -> trio.Event:
    """Return an event that is set at the first SIGTERM or SIGINT, after a call of `react`.

    The second signal ends the process at once.
    """
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
