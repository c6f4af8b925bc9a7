"""What an agent tells before its turn and after it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from arcp_trio import acp
from arcp_trio.proxies.acp.mapping import Item


class OutsideItems:
    """Keeps the order of what comes outside of the turn.

    What comes before the session is open is kept until the job has told of the session. What comes
    after the turn is the job's only while somebody waits for it.
    """

    def __init__(self, take: Callable[[Item], Awaitable[object]], *, replays: bool) -> None:
        """Make an empty one; with `replays`, what comes before the turn is not of this job."""
        self.turn: acp.Turn | None = None
        """The turn, once it has begun."""
        self._replays = replays
        self._take = take
        self._early: deque[Item] = deque()
        self._is_open = False
        self._early_told: Final = trio.Event()
        self._late_in, self._late = trio.open_memory_channel[Item](0)

    async def put(self, session: acp.Session, item: Item) -> None:
        """Take an item up; called for one at a time."""
        del session
        if self.turn is not None and self.turn.ended:
            await self._put_late(item)
        elif self._replays:
            _leave(item)
        elif self._is_open:
            await self._early_told.wait()
            await self._take(item)
        else:
            self._early.append(item)  # bounded by what the library keeps of a new session

    async def tell_early(self) -> None:
        """Pass on what has come before the session was open, and then what comes at once."""
        self._is_open = True
        while self._early:
            await self._take(self._early.popleft())
        self._early_told.set()

    async def tell_late(self, seconds: float) -> None:
        """Pass on what comes within some seconds after the turn, and nothing later."""
        with trio.move_on_after(seconds):
            async for item in self._late:
                await self._take(item)
        self._late.close()

    async def _put_late(self, item: Item) -> None:
        try:
            await self._late_in.send(item)
        except trio.BrokenResourceError:
            _leave(item)


def _leave(item: Item) -> None:
    if isinstance(item, acp.Request):
        item.give_up()
