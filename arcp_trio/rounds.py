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

    A principal has one turn in each round, however much of it waits, and its next turn begins after
    the one before. Between two turns there is at least one pass of Trio's scheduler. Urgent work
    has a lane of its own, which has every other turn: it does not wait for all the other work, and
    does not hold it up either.
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
        self._at_work: set[str] = set()
        """Principals that have a turn which is not urgent."""
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
        lane = self._urgent if urgent else self._ordinary
        if self._free and self._may_begin(lane, principal):
            self._begin(lane, principal)
        else:
            await self._wait(lane, principal)
        try:
            began = time.thread_time()
            yield
            if self._rests:
                await trio.sleep(held + time.thread_time() - began)
        finally:
            self._end(lane, principal)

    def _may_begin(self, lane: _Lane, principal: str) -> bool:
        return lane is self._urgent or principal not in self._at_work

    def _begin(self, lane: _Lane, principal: str) -> None:
        self._free -= 1
        if lane is self._ordinary:
            self._at_work.add(principal)

    def _end(self, lane: _Lane, principal: str) -> None:
        """End a turn, and give it to the principal that waits longest for one, if any does."""
        self._free += 1
        if lane is self._ordinary:
            self._at_work.remove(principal)
        while self._free and self._pass_on():
            pass

    async def _wait(self, lane: _Lane, principal: str) -> None:
        mine = trio.Event()
        lane.setdefault(principal, deque()).append(mine)
        try:
            await mine.wait()
        except BaseException:
            if mine.is_set():  # it was handed over just now
                self._end(lane, principal)
            else:
                lane[principal].remove(mine)
                if not lane[principal]:
                    del lane[principal]
            raise

    def _pass_on(self) -> bool:
        """Give a turn to somebody who waits; return False if nobody can have it now."""
        lanes = (self._urgent, self._ordinary)
        for lane in lanes if self._urgent_next else reversed(lanes):
            principal = next((each for each in lane if self._may_begin(lane, each)), None)
            if principal is not None:
                break
        else:
            return False
        self._urgent_next = lane is self._ordinary
        waiting = lane.pop(principal)
        self._begin(lane, principal)
        waiting.popleft().set()
        if waiting:
            lane[principal] = waiting  # after the others
        return True
