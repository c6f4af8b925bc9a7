"""A wake-up for tasks that then look for themselves."""

from __future__ import annotations

import trio


class Wake:
    """Set any number of times, it wakes once; several who wait are woken together.

    It says that something may have changed: who waits, looks before and after.
    """

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        """Wake those who wait, or let the next wait return at once."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for `set`, and use it up."""
        event = self._event
        await event.wait()
        if event is self._event:  # else another has used it up, and may wait for the next already
            self._event = trio.Event()
