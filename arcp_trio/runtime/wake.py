"""A wake-up for tasks that then look for themselves."""

from __future__ import annotations

import trio


class Wake:
    """Set any number of times, it wakes once; several who wait are woken together.

    It says that something may have changed: who waits, looks before and after.
    """

    __slots__ = ("_event", "_set")

    def __init__(self) -> None:
        # There are many of these, and nobody ever waits for most: an event would be idle weight.
        self._event: trio.Event | None = None
        self._set = False
        """Set while nobody waited."""

    def set(self) -> None:
        """Wake those who wait, or let the next wait return at once."""
        if self._event is None:
            self._set = True
        else:
            self._event.set()

    async def wait(self) -> None:
        """Wait for `set`, and use it up."""
        if self._set:
            await trio.lowlevel.checkpoint()
            self._set = False
            return
        if self._event is None:
            self._event = trio.Event()
        event = self._event
        await event.wait()
        if event is self._event:  # else another has used it up, and may wait for the next already
            self._event = None
