"""The bytes of a session's log that no journal has, and what to give up when they are too many."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arcp_trio.store.records import LogItem

STEPS: Final = 64
"""How many parts are kept apart, about: an ack or a bound gives up whole ones."""


@attrs.define
class _Step:
    floor: int
    """The floor at which the log no longer has it."""
    size: int


class LogSize:
    """Counts the marks, and the frames that are in no journal, above a session's floor."""

    def __init__(self, most: int, held: int, floor: int) -> None:
        """Begin to count.

        Args:
            most: what may be held, in bytes.
            held: what is held already.
            floor: the floor at which nothing of that is held any longer.
        """
        self.held = 0
        self._most = most
        self._steps: deque[_Step] = deque()
        self._add(floor, held)

    def add(self, items: Iterable[LogItem]) -> None:
        """Count what is appended to the log."""
        for item in items:
            if item.size:
                self._add((item.last_place + 1) // 2, item.size)

    def _add(self, floor: int, size: int) -> None:
        self.held += size
        last = self._steps[-1] if self._steps else None
        if last is not None and last.size < self._most // STEPS:
            last.floor = floor
            last.size += size
        else:
            self._steps.append(_Step(floor, size))

    def let_go(self, floor: int) -> None:
        """Stop counting what the log no longer has above this floor."""
        while self._steps and self._steps[0].floor <= floor:
            self.held -= self._steps.popleft().size

    @property
    def too_large(self) -> bool:
        """Whether more is held than may be."""
        return self.held > self._most

    def fitting_floor(self) -> int:
        """Return the least floor above which no more is held than may be."""
        held, floor = self.held, 0
        for step in self._steps:
            if held <= self._most:
                break
            held -= step.size
            floor = step.floor
        return floor
