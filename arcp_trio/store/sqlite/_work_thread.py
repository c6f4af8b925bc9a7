"""A thread that does one piece of work after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import trio

_T = TypeVar("_T")


class WorkThread:
    """A thread that lives as long as the `with` block around it, and makes calls for tasks.

    It makes them in the order in which they came. `trio.to_thread` looks for a thread of a pool for
    each call, which costs the loop about twice as much.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._errands: SimpleQueue[_Errand[Any] | None] = SimpleQueue()
        self._thread: threading.Thread

    def __enter__(self) -> None:
        # A daemon: if the loop itself breaks, nobody is left to end the thread.
        self._thread = threading.Thread(target=self._run_errands, name=self._name, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._errands.put(None)
        self._thread.join()  # at once: every errand was waited for

    @trio.lowlevel.enable_ki_protection  # else Ctrl-C could leave an errand without its task
    async def run(self, act: Callable[[], _T]) -> _T:
        """Call `act` in the thread, and return what it returns; a cancel waits until it is done."""
        await trio.lowlevel.checkpoint_if_cancelled()
        errand = _Errand(act)
        self._errands.put(errand)
        await trio.lowlevel.wait_task_rescheduled(_not_yet)
        return errand.result()

    def _run_errands(self) -> None:
        while (errand := self._errands.get()) is not None:
            errand.run()
            del errand  # what it holds is not kept until the next one


class _Errand(Generic[_T]):
    """What a task wants to be called, and what came of it."""

    def __init__(self, act: Callable[[], _T]) -> None:
        self._act = act
        self._task = trio.lowlevel.current_task()
        self._token = trio.lowlevel.current_trio_token()
        self._error: BaseException | None = None
        self._result: _T

    def run(self) -> None:
        """Make the call, and wake the task; in the thread."""
        try:
            self._result = self._act()
        except BaseException as error:  # noqa: BLE001 - it is the task's
            self._error = error
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(trio.lowlevel.reschedule, self._task)

    def result(self) -> _T:
        """Return what the call returned, or raise what it raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result


def _not_yet(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
