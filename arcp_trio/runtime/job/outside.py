"""An agent's function at work outside of the runtime's loop: blocking, or under asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from arcp_trio.runtime.job.asyncio_context import AsyncioContext
from arcp_trio.runtime.job.awaiting import call_agent
from arcp_trio.runtime.job.blocking import BlockingContext
from arcp_trio.wire.json import JsonLike


class OutsideWork(Protocol):
    """The call of an agent's function in a thread that nothing else needs."""

    def run(self) -> JsonLike:
        """Call the function, and return what it returns. May raise anything."""
        ...

    def cancel(self) -> None:
        """Have the function end soon. May be called by any thread, before or during the call."""
        ...


class BlockingWork:
    """The call of a plain `def` agent."""

    def __init__(
        self,
        function: Callable[[BlockingContext], JsonLike],
        context: BlockingContext,
        cancel: Callable[[], None],
    ) -> None:
        self._function = function
        self._context = context
        self._cancel = cancel

    def run(self) -> JsonLike:
        """Call the function."""
        return self._function(self._context)

    def cancel(self) -> None:
        """Have each further call of the context raise `AgentCancelled`."""
        self._cancel()


class AsyncioWork:
    """The call of an agent with `loop="asyncio"`, in a loop of its own."""

    def __init__(
        self, function: Callable[[AsyncioContext], Awaitable[JsonLike]], context: AsyncioContext
    ) -> None:
        self._function = function
        self._context = context
        self._lock = threading.Lock()
        self._cancelled = False
        self._cancel_task: Callable[[], object] | None = None

    def run(self) -> JsonLike:
        """Run a loop until the function has returned and its tasks have ended."""
        with asyncio.Runner() as runner:
            return runner.run(self._call())

    async def _call(self) -> JsonLike:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with self._lock:
            self._cancel_task = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._cancelled:
                task.cancel()
        return await call_agent(self._function, self._context)

    def cancel(self) -> None:
        """Cancel the function's task."""
        with self._lock:
            self._cancelled = True
            if self._cancel_task is not None:
                with suppress(RuntimeError):  # the loop is closed: the function has ended
                    self._cancel_task()
