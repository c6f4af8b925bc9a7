"""Handshakes under way: none of them waits for long for a store that cannot be used."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.wake import Wake

if TYPE_CHECKING:
    from arcp_trio.store.interface import Store

LOOK_SECONDS: Final = 0.5
"""Pause between two looks at a store for which handshakes may be waiting."""

SILENT_SECONDS: Final = 2.0
"""How long nothing may be heard of a store that is writing. Few writes take a hundredth of that."""

TRY_SECONDS: Final = 1.0
"""How long a handshake lasts before it is to be found out whether the store can be used."""


class Openings:
    """The handshakes that are under way, which end if the store cannot be used.

    A server that was stopped refuses what is asked of it, but one that stands still, or cannot be
    reached, only does not answer. A write that takes long while nothing else is answered either is
    the sign of that. A handshake that has nothing to be written has the store try.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._under_way: dict[trio.CancelScope, float] = {}
        """Since when on Trio's clock each of them is."""
        self._begun = Wake()

    @contextmanager
    def opening(self) -> Generator[None]:
        """Do a handshake in the block, which is left early if the store cannot be used."""
        with trio.CancelScope() as scope:
            self._under_way[scope] = trio.current_time()
            self._begun.set()
            try:
                yield
            finally:
                del self._under_way[scope]

    def give_up(self) -> None:
        """End all handshakes."""
        for scope in self._under_way:
            scope.cancel(reason="the store cannot be used")

    async def mind(self) -> None:
        """End the handshakes when the store stands still, until cancelled."""
        while True:
            await self._begun.wait()
            stalled = False
            while self._under_way:
                await trio.sleep(LOOK_SECONDS)
                # Twice in a row: a loop that was held up finds late what was stored in time.
                before, stalled = stalled, self._store.silent_seconds > SILENT_SECONDS
                if before and stalled:
                    self.give_up()
                first = min(self._under_way.values(), default=math.inf)
                if trio.current_time() - first > TRY_SECONDS:
                    self._store.doubt()
