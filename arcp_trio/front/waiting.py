"""The bound on connections that have not opened a session."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio


@attrs.define(eq=False)
class Visitor:
    """A connection that has not opened a session."""

    hang_up: Callable[[], None]
    """Shuts its socket down, at once and without waiting for anything."""
    scope: trio.CancelScope
    """Around all that is done for it, with the deadline of its opening handshake."""
    evicted: bool = False
    """Whether it had to make room for another visitor."""
    answered: bool = False
    """Whether it has been refused, or has got its page: only the end of the connection is due."""

    def evict(self) -> None:
        """End the connection."""
        self.evicted = True
        self.hang_up()
        self.scope.cancel(reason="too many connections wait for a session")


class WaitingRoom:
    """Holds a bounded number of visitors: one more, and the one that waits longest is evicted.

    A peer that keeps connections open and says nothing loses them first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[Visitor, None] = {}  # the oldest first

    def enter(self, hang_up: Callable[[], None], deadline: float) -> Visitor:
        """Add a visitor, which is there until it leaves or is evicted."""
        visitor = Visitor(hang_up, trio.CancelScope(deadline=deadline))
        self._waiting[visitor] = None
        if len(self._waiting) > self._most:
            oldest = next(iter(self._waiting))
            self.leave(oldest)
            oldest.evict()
        return visitor

    def leave(self, visitor: Visitor) -> None:
        """Forget a visitor, if it is still here: it has a session, or its connection is closed."""
        self._waiting.pop(visitor, None)
