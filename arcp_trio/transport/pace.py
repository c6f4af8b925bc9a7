"""How fast a peer's messages, and the parts of them, are handled."""

from __future__ import annotations

import math
from typing import Final

import trio

PARTS_PER_SECOND: Final = 2_000
"""How fast fragments, pings and pongs are handled, for long: they say little and cost much.

Whole messages are not counted. What is discarded is looked at no faster, with whole messages
counted.
"""
PARTS_BURST_SECONDS: Final = 1.0
"""After a time with few of them, this many seconds' worth may come at once."""


class Pace:
    """A token bucket: things may come faster than `per_second`, but not for long.

    It is the pace of one connection, or of several that belong to the same peer.
    """

    def __init__(self, per_second: float, *, burst_seconds: float) -> None:
        """Make a pace, from which after a quiet time `burst_seconds` may come at once."""
        self._per_second = per_second
        self._burst_seconds = burst_seconds
        self._due = -math.inf

    def count(self, number: float = 1) -> float:
        """Count what has come; return how long to wait before the next comes, if above 0."""
        now = trio.current_time()
        self._due = max(self._due, now - self._burst_seconds) + number / self._per_second
        return self._due - now

    async def wait_for(self, number: float) -> None:
        """Count what is to be handled, and wait until it may be."""
        await trio.sleep(max(0, self.count(number) - number / self._per_second))

    def give_back(self, number: float) -> None:
        """Count fewer: there was not as much after all."""
        self._due -= number / self._per_second


def pace_of_parts() -> Pace:
    """Return a new pace of fragments, pings and pongs."""
    return Pace(PARTS_PER_SECOND, burst_seconds=PARTS_BURST_SECONDS)
