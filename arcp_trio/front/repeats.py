"""Log lines of what a stranger can repeat at will: at most one a second for each reason."""

from __future__ import annotations

import logging
import math
from typing import Final

import trio

PAUSE_SECONDS: Final = 1.0
"""Between two lines of one reason."""


class Repeats:
    """Logs the first event of a reason at once; the next line says how many there were since."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._next: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def tell(self, reason: str, **facts: str) -> None:
        """Log an event, or count it for a later line; `reason` is one of a few fixed words."""
        now = trio.current_time()
        times = self._untold.get(reason, 0) + 1
        if now < self._next.get(reason, -math.inf):
            self._untold[reason] = times
            return
        self._next[reason], self._untold[reason] = now + PAUSE_SECONDS, 0
        repeated = {"times": times} if times > 1 else {}
        self._log.info(self._what, extra={**facts, "reason": reason, **repeated})
