"""How much a worker's job may ask for before it has answers. Both sides count in the same way."""

from __future__ import annotations

from typing import Final

MOST_CALLS: Final = 128
"""Calls of one kind: more than a job has children, questions and approvals to wait for."""
SMALL_BYTES: Final = 64 * 1024
"""Calls of fewer bytes together keep no other call waiting by their bytes."""


class Allowance:
    """What a job has of one kind of calls without an answer at once, in number and in bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._calls = 0
        self._bytes = 0

    def take(self, size: int) -> bool:
        """Count a call of `size` bytes, if the allowance is enough for it.

        Beside small calls it is enough for one of any size: they may be waits that last.
        """
        fits = self._bytes < SMALL_BYTES or self._bytes + size <= self._most_bytes
        if self._calls >= MOST_CALLS or not fits:
            return False
        self._calls += 1
        self._bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Strike off a call that has its answer."""
        self._calls -= 1
        self._bytes -= size
