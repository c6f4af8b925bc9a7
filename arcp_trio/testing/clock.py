"""A wall clock that follows Trio's clock."""

from __future__ import annotations

import time

import trio


class TrioClock:
    """A clock that starts at the time of day, and from then on advances as Trio's clock does.

    In a test with a virtual clock, timestamps and expiry follow that clock.
    """

    def __init__(self) -> None:
        self._offset: float | None = None

    def now(self) -> float:
        """Return the seconds since 1970, UTC."""
        if self._offset is None:
            self._offset = time.time() - trio.current_time()
        return self._offset + trio.current_time()
