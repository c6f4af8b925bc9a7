"""Housekeeping: rounds of cleaning beside the commits, while there may be something to clean."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from arcp_trio.store.errors import Fenced
from arcp_trio.store.outage import Outage

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.1
"""Pause before a round."""

FAILED_PAUSE_SECONDS: Final = 2.0
"""Pause after a round that failed."""


class Housekeeping:
    """Calls for a round when something has changed, and for another one if there is more to do."""

    def __init__(
        self, clean: Callable[[], Awaitable[bool]], *, idle_seconds: float = math.inf
    ) -> None:
        """Make the housekeeping of a store.

        Args:
            clean: makes a round, and returns whether there is more to do.
            idle_seconds: how long to wait for a change before the next round.
        """
        self._clean = clean
        self._idle_seconds = idle_seconds
        self._changed = trio.Event()

    def wake(self) -> None:
        """Have a round made soon: there may be something to clean."""
        self._changed.set()

    async def run(self) -> None:
        """Make rounds until cancelled, or until this node is fenced."""
        outage = Outage(log, "store cannot be cleaned up for now")
        while True:
            with trio.move_on_after(self._idle_seconds):
                await self._changed.wait()
            self._changed = trio.Event()
            await trio.sleep(PAUSE_SECONDS)
            failed = True
            try:
                with outage:
                    if await self._clean():
                        self.wake()
                    failed = False
            except Fenced:
                return  # there is nothing left that is this node's to clean up
            except Exception:  # a fault in housekeeping must not end the runtime
                log.exception("housekeeping failed, and goes on")
            if failed:
                self.wake()
                await trio.sleep(FAILED_PAUSE_SECONDS)
