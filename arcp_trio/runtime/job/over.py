"""When a job is over: from then on nothing waits for its agent, and its agent for nothing."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import attrs
import trio

from arcp_trio.wire.errors import InternalError


@attrs.define(eq=False)
class Over:
    """Whether a job is over: ended, suspended with its agent stopped, or no longer waited for."""

    _event: trio.Event = attrs.field(factory=trio.Event)
    _waits: set[trio.CancelScope] = attrs.field(factory=set[trio.CancelScope])

    def set(self) -> None:
        """Say that the job is over, wherever its agent is: in a thread or a process, perhaps."""
        self._event.set()
        for scope in self._waits:
            scope.cancel(reason="the job is over")

    def is_set(self) -> bool:
        """Return whether the job is over."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Wait until the job is over."""
        await self._event.wait()

    @contextmanager
    def ends_waits(self) -> Generator[None]:
        """End what the block waits for when the job is over, even if the agent shields it.

        What the agent waits for may never come: the store's writer may be over, too.

        Raises:
            InternalError: the job is over.
        """
        with trio.CancelScope() as scope:
            if self._event.is_set():
                scope.cancel(reason="the job is over")
            self._waits.add(scope)
            try:
                yield
            finally:
                self._waits.discard(scope)
        if scope.cancelled_caught:
            raise InternalError("the job is over")
