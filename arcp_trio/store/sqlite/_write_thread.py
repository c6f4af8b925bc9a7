"""The thread that writes, for which the loop stands still a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import trio
from trio.lowlevel import Abort

_T = TypeVar("_T")

STANDSTILL_SECONDS: Final = 0.001
"""How long the loop stands still at most: longer than a small group's statements take."""


class WriteThread:
    """Calls one function at a time in a thread; a cancel waits until it is done.

    Each of SQLite's statements gives Python's lock up several times, and a busy loop takes it. A
    thread that has to wait for it a hundred times takes some twenty milliseconds for a commit, and
    whatever waits for the commit waits as long. So the loop stands still at first, until the thread
    lets it go on or a short time is over. Neither of the two could do more meanwhile: the lock lets
    one of them run.
    """

    def __init__(self) -> None:
        self.limiter: Final = trio.CapacityLimiter(1)
        self._standstill = threading.Lock()
        """Held until the loop may go on."""

    async def run(self, act: Callable[[], _T]) -> _T:
        """Return what `act` returns, in a thread, once the calls before are done."""
        async with self.limiter:
            task, token = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()
            self._standstill = threading.Lock()
            self._standstill.acquire()

            def in_thread() -> _T:
                try:
                    return act()
                finally:
                    self.let_loop_go_on()

            trio.lowlevel.start_thread_soon(
                in_thread,
                lambda result: token.run_sync_soon(trio.lowlevel.reschedule, task, result),
                "store writer",
            )
            self._standstill.acquire(timeout=STANDSTILL_SECONDS)
            done: _T = await trio.lowlevel.wait_task_rescheduled(lambda _: Abort.FAILED)
            return done

    def let_loop_go_on(self) -> None:
        """Let the loop go on; the thread calls this before it waits for the disk."""
        if self._standstill.locked():
            self._standstill.release()
