"""A wake-up call for tasks, which then look at the state themselves."""

from __future__ import annotations

import trio


class Wake:
    """Says that something may have changed; a task that waits looks before and after.

    Set any number of times, it wakes once. All tasks that wait are woken together.
    """

    __slots__ = ("_event", "_set")

    def __init__(self) -> None:
        # Made when a task waits: most of these are never waited for, and an event has a cost.
        self._event: trio.Event | None = None
        self._set = False
        """Set while no task waited."""

    def set(self) -> None:
        """Wake the tasks that wait, or let the next wait return at once."""
        if self._event is None:
            self._set = True
        else:
            self._event.set()

    async def wait(self) -> None:
        """Wait for `set`, and reset."""
        if self._set:
            await trio.lowlevel.checkpoint()
            self._set = False
            return
        if self._event is None:
            self._event = trio.Event()
        event = self._event
        await event.wait()
        if event is self._event:  # else another task has reset it, and may be waiting again
            self._event = None
