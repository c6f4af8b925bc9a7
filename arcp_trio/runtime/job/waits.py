"""The calls that an agent outside of the loop waits for."""

from __future__ import annotations

import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

from arcp_trio.runtime.job.blocking import AgentCancelled

_T = TypeVar("_T")


class Waits:
    """Futures that are not settled yet; `cancel` ends them all. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: set[Future[Any]] = set()
        self._cancelled = False

    def add(self, future: Future[_T]) -> bool:
        """Add a future, which `cancel` ends; return False if that was called before."""
        with self._lock:
            if not self._cancelled:
                self._pending.add(future)
                future.add_done_callback(self._pending.discard)
                return True
        fail(future)
        return False

    def cancel(self) -> None:
        """End each wait by `AgentCancelled`, also those that begin later."""
        with self._lock:
            self._cancelled = True
            pending = list(self._pending)
        for future in pending:
            fail(future)


def fail(future: Future[Any]) -> None:
    """End a wait by `AgentCancelled`, unless it has ended."""
    with suppress(InvalidStateError):
        future.set_exception(AgentCancelled("the job is to end"))
