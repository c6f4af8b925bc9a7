"""A wall clock for tests."""

from __future__ import annotations

import time

import trio


class TrioClock:
    """The time of day at first, and from then on as much later as Trio's clock says.

    With a virtual clock under the test, timestamps and expiry move with it.
    """

    def __init__(self) -> None:
        self._offset: float | None = None

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        if self._offset is None:
            self._offset = time.time() - trio.current_time()
        return self._offset + trio.current_time()
