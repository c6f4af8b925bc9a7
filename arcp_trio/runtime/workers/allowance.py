"""How much a worker's job may ask for before it has answers. Both sides count in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from arcp_trio.runtime.limits import Limits

MOST_EVENTS: Final = 128
"""Calls that add to a job's journal."""
_OTHER_WAITS: Final = 48
"""Calls beside the waits for children and answers: each of them soon has its own."""
SMALL_BYTES: Final = 64 * 1024
"""Calls of fewer bytes together keep no other call waiting by their bytes."""


def most_waits(limits: Limits) -> int:
    """Return how many calls a job may have that do not add to its journal.

    They are enough to wait for each child and each answer that a job can have, and then some. The
    runtime has a task for each, so that they have to have a bound: a program may wait for one child
    any number of times.
    """
    return limits.children_per_job + limits.questions_per_job + _OTHER_WAITS


class Allowance:
    """What a job has of one kind of calls without an answer at once, in number and in bytes."""

    def __init__(self, most_calls: int, most_bytes: int) -> None:
        self._most_calls = most_calls
        self._most_bytes = most_bytes
        self._calls = 0
        self._bytes = 0

    def take(self, size: int) -> bool:
        """Count a call of `size` bytes, if the allowance is enough for it.

        Beside small calls it is enough for one of any size: they may be waits that last.
        """
        fits = self._bytes < SMALL_BYTES or self._bytes + size <= self._most_bytes
        if self._calls >= self._most_calls or not fits:
            return False
        self._calls += 1
        self._bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Strike off a call that has its answer."""
        self._calls -= 1
        self._bytes -= size
