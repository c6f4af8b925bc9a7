"""An agent on Trio at work in a worker process."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

import trio

from arcp_trio.runtime.job.awaiting import call_agent
from arcp_trio.runtime.job.context import JobContext
from arcp_trio.runtime.job.job_view import JobFacts
from arcp_trio.runtime.job.link import Carrier, DistantLink
from arcp_trio.wire.json import JsonLike

_T = TypeVar("_T")


class TrioLink(DistantLink):
    """A link whose waits are Trio's, in a worker's own loop."""

    def task(self) -> object:
        """Return the task that calls this."""
        return trio.lowlevel.current_task()

    async def _wait(self, future: Future[_T]) -> _T:
        token, done = trio.lowlevel.current_trio_token(), trio.Event()

        def wake(_future: Future[_T]) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(done.set)

        future.add_done_callback(wake)
        try:
            await done.wait()
        except trio.Cancelled:
            future.cancel()
            raise
        return future.result()


class TrioWork:
    """The call of an `async def` agent, in a Trio loop of its own."""

    def __init__(
        self,
        function: Callable[[JobContext], Awaitable[JsonLike]],
        carrier: Carrier,
        facts: JobFacts,
        seconds: float | None,
    ) -> None:
        self._function = function
        self._carrier = carrier
        self._facts = facts
        self._seconds = seconds
        self._lock = threading.Lock()
        self._cancelled = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()

    def run(self) -> JsonLike:
        """Run a loop until the function has returned."""
        return trio.run(self._call)

    async def _call(self) -> JsonLike:
        with self._lock:
            self._token = trio.lowlevel.current_trio_token()
            if self._cancelled:
                self._scope.cancel()
        deadline = None if self._seconds is None else trio.current_time() + self._seconds
        with self._scope:
            context = JobContext(TrioLink(self._carrier), self._facts, deadline)
            return await call_agent(self._function, context)
        return None  # the job is cancelled: its outcome is known

    def cancel(self) -> None:
        """Cancel the function."""
        with self._lock:
            self._cancelled = True
            if self._token is not None:
                with suppress(trio.RunFinishedError):
                    self._token.run_sync_soon(self._scope.cancel)
