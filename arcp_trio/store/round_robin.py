"""The order in which tasks use something that serves one at a time: principal by principal."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeAlias

import trio

_Lane: TypeAlias = dict[str, deque[trio.Event]]
"""What waits, by principal; the principal that is served next stands first."""


class RoundRobin:
    """Serves one task at a time: of each principal one, before a second one of any.

    Tasks that resume sessions have a lane of their own, and every other task served is of it: a
    client whose connection was lost does not wait for all that was asked on others. Within a
    principal and a lane, tasks are served in the order in which they came.
    """

    def __init__(self) -> None:
        self._ordinary: _Lane = {}
        self._resuming: _Lane = {}
        self._busy = False
        self._resuming_next = True

    @asynccontextmanager
    async def served(self, principal: str, *, resuming: bool = False) -> AsyncGenerator[None]:
        """Run a block for a principal, while no other block runs."""
        if self._busy:
            await self._wait(self._resuming if resuming else self._ordinary, principal)
        self._busy = True
        try:
            yield
        finally:
            self._serve_next()

    async def _wait(self, lane: _Lane, principal: str) -> None:
        served = trio.Event()
        lane.setdefault(principal, deque()).append(served)
        try:
            await served.wait()
        except trio.Cancelled:
            if served.is_set():
                self._serve_next()
            else:
                lane[principal].remove(served)
                if not lane[principal]:
                    del lane[principal]
            raise

    def _serve_next(self) -> None:
        """Let the next task go on, and stay busy meanwhile, so that no other gets between."""
        lane = self._resuming if self._resuming_next else self._ordinary
        lane = lane or self._resuming or self._ordinary
        if not lane:
            self._busy = False
            return
        self._resuming_next = lane is self._ordinary
        principal = next(iter(lane))
        waiting = lane.pop(principal)
        waiting.popleft().set()
        if waiting:
            lane[principal] = waiting  # behind the others
