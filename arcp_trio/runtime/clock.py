"""The wall clock, used for timestamps only; every deadline is on Trio's clock."""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    """Tells the time of day."""

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        return time.time()


STEP_SECONDS: Final = 0.1
"""The most by which a correction changes the time of a store at once."""


class StoreClock:
    """The clock of a store that several runtimes share, as far as this machine can tell."""

    def __init__(self) -> None:
        self._ahead: float | None = None

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        return time.time() + (self._ahead or 0.0)

    def correct(self, ahead: float) -> None:
        """Follow the store's clock, which was seen to be ahead of this machine's; in small steps.

        The first correction is made at once.
        """
        if self._ahead is None:
            self._ahead = ahead
        self._ahead += max(-STEP_SECONDS, min(ahead - self._ahead, STEP_SECONDS))
