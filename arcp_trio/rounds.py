"""Rounds: few pieces of work at a time, and each principal's in its turn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeAlias

import trio

_Lane: TypeAlias = dict[str, deque[trio.Event]]
"""What waits, by principal; the one whose turn is next stands first."""


class Rounds:
    """Hands turns for work that only one, or a few, can do at a time from principal to principal.

    A principal has one turn in each round, however much of it waits. Between two turns there is at
    least one pass of Trio's scheduler. Urgent work has a lane of its own, which has every other
    turn: it does not wait for all the other work, and does not hold it up either.
    """

    def __init__(self, *, places: int = 1, rests: bool = False) -> None:
        """Make the rounds of one kind of work.

        Args:
            places: how many have a turn at a time.
            rests: whether the next turn begins only after a rest as long as the work before it has
                held the loop. What others do takes several steps, and each would wait for a piece
                of such work; so half of the loop's time is theirs.
        """
        self._rests = rests
        self._free = places
        self._ordinary: _Lane = {}
        self._urgent: _Lane = {}
        self._urgent_next = True

    @asynccontextmanager
    async def turn(
        self, principal: str, *, urgent: bool = False, held: float = 0
    ) -> AsyncGenerator[None]:
        """Wait for the principal's turn, and have it for the block.

        Args:
            principal: whose turn it is.
            urgent: whether to wait in the lane for what is urgent.
            held: the seconds for which the work has held the loop already.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait(self._urgent if urgent else self._ordinary, principal)
        try:
            began = time.thread_time()
            yield
            if self._rests:
                await trio.sleep(held + time.thread_time() - began)
        finally:
            self._pass_on()

    async def _wait(self, lane: _Lane, principal: str) -> None:
        mine = trio.Event()
        lane.setdefault(principal, deque()).append(mine)
        try:
            await mine.wait()
        except BaseException:
            if mine.is_set():  # it was handed over just now
                self._pass_on()
            else:
                lane[principal].remove(mine)
                if not lane[principal]:
                    del lane[principal]
            raise

    def _pass_on(self) -> None:
        """Give the turn to the principal that waits longest for one, if any does."""
        lane = self._urgent if self._urgent_next else self._ordinary
        lane = lane or self._urgent or self._ordinary
        if not lane:
            self._free += 1
            return
        self._urgent_next = lane is self._ordinary
        principal = next(iter(lane))
        waiting = lane.pop(principal)
        waiting.popleft().set()
        if waiting:
            lane[principal] = waiting  # after the others
