"""A wall clock for tests."""

from __future__ import annotations

from typing import Final

import trio

EPOCH: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z: when time begins."""


class TrioClock:
    """The time of day as Trio's clock counts it, so that virtual time moves timestamps as well."""

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        return EPOCH + trio.current_time()
