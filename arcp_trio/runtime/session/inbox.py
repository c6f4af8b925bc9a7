"""What a session's client has asked for, and the bounds on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.wake import Wake

if TYPE_CHECKING:
    from arcp_trio.runtime.limits import Limits
    from arcp_trio.runtime.session.clerk import Command


class Inbox:
    """Commands in the order they came: the connection's reader adds them, the clerk takes them."""

    def __init__(self, limits: Limits) -> None:
        self._most_bytes = limits.inbox_bytes
        self._bytes = 0
        self._bytes_done = Wake()
        self._send, self.commands = trio.open_memory_channel["Command"](limits.inbox_items)
        """`commands` is where the clerk receives them; each is counted until `done`."""

    async def put(self, command: Command) -> None:
        """Add a command; wait for room.

        The size of its frame counts towards `inbox_bytes` until the caller of `done` returns it.
        """
        size, taken = command.size, 0
        try:
            while size and self._bytes and self._bytes + size > self._most_bytes:
                await self._bytes_done.wait()
            taken = size
            self.begun(taken)
            await self._send.send(command)
        except BaseException:
            self.done(taken)
            raise

    def begun(self, size: int) -> None:
        """Count `size` bytes that are being worked on."""
        self._bytes += size

    def done(self, size: int) -> None:
        """Return `size` bytes to the inbox budget."""
        self._bytes -= size
        self._bytes_done.set()
