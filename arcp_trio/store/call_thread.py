"""Threads that make the calls of an engine, for which the loop stands still a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

import trio

from arcp_trio.store.errors import StoreError
from arcp_trio.store.naps import Naps

_T = TypeVar("_T")

STANDSTILL_SECONDS: Final = 0.001
"""How long the loop stands still at most: longer than a small group's statements take."""

CUT_SECONDS: Final = 1.0
"""How long a call that was cancelled may take before it is cut off."""


class CallThread:
    """A thread that lives as long as the `with` block around it, and makes one call at a time.

    Each of SQLite's statements gives Python's lock up several times, and a busy loop takes it. A
    thread that has to wait for it a hundred times takes some twenty milliseconds for a commit, and
    whatever waits for the commit waits as long. So the loop stands still at first, until the thread
    lets it go on or a short time is over. Neither of the two could do more meanwhile: the lock lets
    one of them run. From then on the loop naps now and then (`Naps`).
    """

    def __init__(self, name: str, *, standstill: bool = True) -> None:
        """Make a thread.

        Args:
            name: what the system calls the thread.
            standstill: whether the loop stands still at the beginning of a call.
        """
        self.waiting = 0
        """Tasks that wait for their calls."""
        self._name = name
        self._stands_still = standstill
        self._naps = Naps()
        self._errands: SimpleQueue[_Errand[Any] | None] = SimpleQueue()
        self._standstill = threading.Lock()
        """The lock of the call that is made now, held while the loop stands still for it."""
        self._thread: threading.Thread
        self._runs = False

    def __enter__(self) -> None:
        # A daemon: if the loop itself breaks, nobody is left to end the thread.
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        self._runs = True

    def __exit__(self, *_: object) -> None:
        self._runs = False
        self._errands.put(None)
        self._thread.join()  # at once: every call was waited for, or is cut off

    @trio.lowlevel.enable_ki_protection  # else Ctrl-C could leave an errand without its task
    async def run(self, act: Callable[[], _T], cut: Callable[[], None] | None = None) -> _T:
        """Return what `act` returns, once the calls before are done; a cancel waits for it.

        Args:
            act: the call.
            cut: called some time after a cancel, in the loop, to have the call end sooner.

        Raises:
            StoreError: the thread has ended.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._runs:
            raise StoreError("the store is not open")
        errand = _Errand(act)
        self.waiting += 1
        stands_still = self._stands_still and self.waiting == 1  # else it makes another call first
        if stands_still:
            errand.standstill.acquire()
        self._errands.put(errand)
        let_go = stands_still and errand.standstill.acquire(timeout=STANDSTILL_SECONDS)

        with nullcontext() if let_go else self._naps:
            try:
                await errand.done.wait()
            except trio.Cancelled:  # noqa: ASYNC103 - the next checkpoint raises it again
                # To connect again takes longer than most calls still do.
                with trio.CancelScope(shield=True) as patience:
                    if cut is not None:
                        patience.deadline = trio.current_time() + CUT_SECONDS
                    await errand.done.wait()
                if cut is not None and patience.cancelled_caught:
                    cut()
                    with trio.CancelScope(shield=True):
                        await errand.done.wait()
            finally:
                self.waiting -= 1
        return errand.result()

    def let_loop_go_on(self) -> None:
        """Let the loop go on; the thread calls this before it waits for the disk."""
        if self._standstill.locked():
            self._standstill.release()

    def _run(self) -> None:
        while (errand := self._errands.get()) is not None:
            self._standstill = errand.standstill
            errand.make_call()
            self.let_loop_go_on()
            errand.wake_task()
            del errand  # what it holds is not kept until the next one


class _Errand(Generic[_T]):
    """What a task wants to be called, and what came of it."""

    def __init__(self, act: Callable[[], _T]) -> None:
        self.standstill = threading.Lock()
        """Held until the loop may go on."""
        self._act = act
        self.done = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._error: BaseException | None = None
        self._result: _T

    def make_call(self) -> None:
        """Make the call, in the thread."""
        try:
            self._result = self._act()
        except BaseException as error:  # noqa: ASYNC103, BLE001 - it is the task's
            self._error = error

    def wake_task(self) -> None:
        """Have the task go on."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.done.set)

    def result(self) -> _T:
        """Return what the call returned, or raise what it raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result
