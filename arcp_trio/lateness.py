"""Waiting for signs of life in a loop that may be held: what was not heard then does not count."""

from __future__ import annotations

import math
from typing import Final

import trio

LATE_SECONDS: Final = 0.2
"""A loop that is late by more than this was held by something that did not give way."""


class HeldTime:
    """How long the loop was held, as a task notices that sleeps again and again."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0.0
        """In seconds."""

    async def sleep_until(self, deadline: float) -> None:
        """Sleep until `deadline`, and count how much later than that it is."""
        due = max(deadline, trio.current_time())
        await trio.sleep_until(deadline)
        late = trio.current_time() - due
        if late > LATE_SECONDS:
            self.total += late


class Patience:
    """A peer is lost after two intervals without a sign of life.

    Time in which the loop was held does not count, and after such a time the peer has one interval
    more. So a loop that is late at every interval puts the loss off, but not for ever.
    """

    __slots__ = ("_held", "_held_before", "_interval", "_seen", "_since")

    def __init__(self, held: HeldTime, interval: float) -> None:
        self._held = held
        self._interval = interval
        self._since: float | None = None
        self._held_before = self._seen = held.total

    def ends(self, since: float | None) -> float:
        """Return when the peer is lost if there has been no sign of life since then.

        None means that no sign of life is due. Call this before and after each sleep: what was held
        since the call before may have been held after a `since` that is new.
        """
        seen, self._seen = self._seen, self._held.total
        if since != self._since:
            self._since, self._held_before = since, seen
        if since is None:
            return math.inf
        held = self._held.total - self._held_before
        return since + 2 * self._interval + (held + self._interval if held else 0)
