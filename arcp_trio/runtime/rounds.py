"""Rounds: one piece of heavy work at a time, and each principal's in its turn."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


class Rounds:
    """Hands the turn for work that holds the loop from principal to principal.

    There is a pass of Trio's scheduler between two pieces of such work, so that everybody else
    waits for one of them at most. A principal with many connections has one turn in each round.
    """

    def __init__(self) -> None:
        self._taken = False
        self._waiting: dict[str, deque[trio.Event]] = {}
        """By principal, the one whose turn is next first."""

    @asynccontextmanager
    async def turn(self, principal: str) -> AsyncGenerator[None]:
        """Wait for the principal's turn, and have it for the block."""
        if self._taken:
            await self._wait(principal)
        self._taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, principal: str) -> None:
        mine = trio.Event()
        self._waiting.setdefault(principal, deque()).append(mine)
        try:
            await mine.wait()
        except BaseException:
            if mine.is_set():  # it was handed over just now
                self._pass_on()
            else:
                self._forget(principal, mine)
            raise

    def _forget(self, principal: str, event: trio.Event) -> None:
        line = self._waiting[principal]
        line.remove(event)
        if not line:
            del self._waiting[principal]

    def _pass_on(self) -> None:
        """Give the turn to the principal that waits longest for one, if any does."""
        self._taken = bool(self._waiting)
        if not self._taken:
            return
        principal = next(iter(self._waiting))
        line = self._waiting.pop(principal)
        line.popleft().set()
        if line:
            self._waiting[principal] = line  # after the others
