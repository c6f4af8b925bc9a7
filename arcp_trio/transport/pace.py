"""How fast a peer's fragments, pings and pongs are handled, which say little and cost much."""

from __future__ import annotations

import math
from typing import Final

import trio

PARTS_PER_SECOND: Final = 2_000
"""How fast, for long; whole messages are not counted.

What is discarded is looked at no faster, with whole messages counted.
"""
BURST_SECONDS: Final = 1.0
"""After a time with few of them, this many seconds' worth may come at once."""


class PartsPace:
    """The pace of one connection, or of several that belong to the same peer."""

    def __init__(self) -> None:
        self._due = -math.inf

    async def wait_for(self, parts: float) -> None:
        """Count parts, and wait until as many may be handled."""
        at = max(self._due, trio.current_time() - BURST_SECONDS)
        self._due = at + parts / PARTS_PER_SECOND
        await trio.sleep_until(at)

    def give_back(self, parts: float) -> None:
        """Count fewer: there were not as many after all."""
        self._due -= parts / PARTS_PER_SECOND
