"""What a session's client has asked for, and the bounds on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.wake import Wake

if TYPE_CHECKING:
    from arcp_trio.runtime.ledger import Share
    from arcp_trio.runtime.limits import Limits
    from arcp_trio.runtime.session.clerk import Command

SMALL_BYTES: Final = 4 * 1024
"""A command of this size finds room in a session that has no other."""


class Inbox:
    """Commands in the order they came: the connection's reader adds them, the clerk takes them."""

    def __init__(self, limits: Limits, share: Share) -> None:
        self._most_bytes = limits.inbox_bytes
        self._share = share
        self._bytes = 0
        self._bytes_done = Wake()
        self._send, self.commands = trio.open_memory_channel["Command"](limits.inbox_items)
        """`commands` is where the clerk receives them; each is counted until `done`."""

    async def put(self, command: Command) -> None:
        """Add a command; wait for room.

        The size of its frame counts towards `inbox_bytes`, and in its principal's share, until the
        caller of `done` returns it.
        """
        size, taken = command.size, 0
        try:
            while self._no_room_for(size):
                await self._share.wait(self._bytes_done)
            taken = size
            self.begun(taken)
            try:
                self._send.send_nowait(command)
            except trio.WouldBlock:
                await self._send.send(command)
        except BaseException:
            self.done(taken)
            raise

    def _no_room_for(self, size: int) -> bool:
        if not size:
            return False
        if self._bytes:
            return self._bytes + size > self._most_bytes or self._share.full
        # A session with an empty inbox always takes a small command, such as a cancel.
        return size > SMALL_BYTES and self._share.full

    def begun(self, size: int) -> None:
        """Count `size` bytes that are being worked on."""
        self._bytes += size
        self._share.take(size)

    def done(self, size: int) -> None:
        """Return `size` bytes to the inbox budget."""
        self._bytes -= size
        self._share.give(size)
        self._bytes_done.set()

    def close(self) -> None:
        """Give back what no clerk will take: the session is no longer in memory."""
        while self.commands.statistics().current_buffer_used:
            self.done(self.commands.receive_nowait().size)
