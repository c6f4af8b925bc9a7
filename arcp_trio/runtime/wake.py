"""A wake-up for one waiting task."""

from __future__ import annotations

import trio


class Wake:
    """Set any number of times, it wakes its one waiter once."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        """Wake the waiter, or let its next wait return at once."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for `set`, and use it up."""
        await self._event.wait()
        self._event = trio.Event()
