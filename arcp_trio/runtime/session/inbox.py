"""What a session's client has asked for, and the bounds on it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from arcp_trio.runtime.wake import Wake

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from arcp_trio.runtime.ledger import Share
    from arcp_trio.runtime.limits import Limits
    from arcp_trio.runtime.session.clerk import Command

SMALL_BYTES: Final = 4 * 1024
"""A command of this size finds room in a session that has no other."""


class Inbox:
    """Commands in the order they came: the connection's reader adds them, the clerk takes them.

    The first command starts the clerk: many sessions only watch, or do nothing.
    """

    def __init__(self, limits: Limits, share: Share) -> None:
        self._most_items = limits.inbox_items
        self._most_bytes = limits.inbox_bytes
        self._share = share
        self._bytes = 0
        self._room_made = Wake()
        self._commands: list[Command] = []
        self._start_clerk: Callable[[], None] | None = None
        """Starts the clerk, if it has not been started."""
        self._wake_clerk = Wake()

    def __len__(self) -> int:
        return len(self._commands)

    @contextmanager
    def clerk_starts_by(self, start_clerk: Callable[[], None]) -> Generator[None]:
        """Have the clerk started when there is a command, during the block."""
        self._start_clerk = start_clerk
        if self._commands:
            self._call_clerk()
        try:
            yield
        finally:
            self._start_clerk = None

    def _call_clerk(self) -> None:
        start_clerk, self._start_clerk = self._start_clerk, None
        if start_clerk is None:
            self._wake_clerk.set()
        else:
            start_clerk()

    async def put(self, command: Command) -> None:
        """Add a command; wait for room.

        The size of its frame counts towards `inbox_bytes`, and in its principal's share, until the
        caller of `done` returns it.
        """
        while not self.has_room(command.size):
            await self._share.wait(self._room_made)
        self.begun(command.size)
        self._commands.append(command)
        self._call_clerk()

    def has_room(self, size: int) -> bool:
        """Whether a command whose frame has this size can be added without waiting."""
        if not size:
            return True
        if len(self._commands) >= self._most_items:
            return False
        if self._bytes:
            return self._bytes + size <= self._most_bytes and not self._share.full
        # A session with an empty inbox always takes a small command, such as a cancel.
        return size <= SMALL_BYTES or not self._share.full

    async def take(self) -> Command:
        """Take the next command, for the clerk; it is counted until `done`."""
        while not self._commands:
            await self._wake_clerk.wait()
        self._room_made.set()
        return self._commands.pop(0)

    def begun(self, size: int) -> None:
        """Count `size` bytes that are being worked on."""
        self._bytes += size
        self._share.take(size)

    def done(self, size: int) -> None:
        """Return `size` bytes to the inbox budget."""
        self._bytes -= size
        self._share.give(size)
        self._room_made.set()

    def close(self) -> None:
        """Give back what no clerk will take: the session is no longer in memory."""
        for command in self._commands:
            self.done(command.size)
        self._commands.clear()
