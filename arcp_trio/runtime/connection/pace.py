"""How fast a connection's client may send: its messages, and its malformed frames."""

from __future__ import annotations

from typing import Final

import trio

BURST_SECONDS: Final = 4.0
"""A client that was quiet may send this many seconds' worth of messages at once."""

MALFORMED_SECONDS: Final = 10.0
"""The span in which `malformed_frames` are counted."""


class Pace:
    """A token bucket: messages may come faster than `per_second`, but not for long."""

    def __init__(self, per_second: float) -> None:
        self._interval = 1 / per_second
        self._due = trio.current_time() - BURST_SECONDS

    def step(self) -> float:
        """Count a message; return how long to wait before reading the next, if above 0."""
        now = trio.current_time()
        self._due = max(self._due, now - BURST_SECONDS) + self._interval
        return self._due - now


class Malformed:
    """Counts a connection's malformed frames over a span of time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: list[float] = []

    def too_many(self) -> bool:
        """Count one more; return whether there are more than allowed in the span."""
        now = trio.current_time()
        self._times = [time for time in self._times if time >= now - MALFORMED_SECONDS]
        self._times.append(now)
        return len(self._times) > self._most
