"""How the loop and the threads of a runtime share Python's lock.

A thread that waits for the lock asks for it only once it has waited for the switch interval, and it
begins to wait anew each time the loop gives the lock up. A busy loop does so at each system call,
and takes the lock back before the thread is awake. So a read of ten statements could take hundreds
of milliseconds beside a principal that keeps the loop busy, and everybody's reads wait for it.
"""

from __future__ import annotations

import time
from typing import Final

from trio.abc import Instrument

SWITCH_SECONDS: Final = 0.0001
"""The switch interval: how long the loop may keep the lock without a system call.

With Python's 5 ms, a busy loop makes a commit of ten statements take 50 ms. Handing it over takes
some microseconds.
"""
BUSY_SECONDS: Final = 0.001
"""How long the loop may be busy without a pause."""
PAUSE_SECONDS: Final = 0.00005
"""How long it sleeps then, at least: enough for a short read, if nothing takes the lock."""


class Pauses(Instrument):
    """Has a loop that is always busy sleep for a moment now and then, so that threads go on."""

    def __init__(self) -> None:
        self._waits_since = 0.0
        self._rested_at = 0.0
        """When the loop last slept: here, or because it had nothing to do."""

    def before_io_wait(self, timeout: float) -> None:
        """Sleep, if the loop has been busy for long."""
        self._waits_since = time.perf_counter()
        if timeout == 0 and self._waits_since - self._rested_at > BUSY_SECONDS:
            time.sleep(PAUSE_SECONDS)
            self._rested_at = time.perf_counter()

    def after_io_wait(self, timeout: float) -> None:
        """Remember whether the loop has just slept because it had nothing to do."""
        if timeout > 0:
            now = time.perf_counter()
            if now - self._waits_since >= PAUSE_SECONDS:
                self._rested_at = now
