"""Giving way to other tasks, where doing so for each of many small things costs more than they."""

from __future__ import annotations

from typing import Final

import trio

TURNS: Final = 32


class Turns:
    """A checkpoint that lets others run once in so many times; a cancellation is seen each time."""

    def __init__(self) -> None:
        self._left = TURNS

    async def take(self) -> None:
        """Use one up."""
        self._left -= 1
        if self._left > 0:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            self._left = TURNS
            await trio.lowlevel.checkpoint()
