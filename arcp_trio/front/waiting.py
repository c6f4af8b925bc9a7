"""How many connections may be open that have not opened a session."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio


@attrs.define(eq=False)
class Visitor:
    """A connection on its way to its session."""

    hang_up: Callable[[], None]
    """Closes its socket, at once and without waiting for anything."""
    scope: trio.CancelScope
    """Around the whole of it; with the deadline until it has been heard."""
    evicted: bool = False

    def evict(self) -> None:
        """Make it go."""
        self.evicted = True
        self.hang_up()
        self.scope.cancel(reason="too many connections wait for a session")


class WaitingRoom:
    """Holds so many visitors at most: when one more comes, the one that waits longest goes.

    So who keeps connections open and says nothing is the one to lose them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[Visitor, None] = {}  # the oldest first

    def enter(self, hang_up: Callable[[], None], deadline: float) -> Visitor:
        """Have one more visitor, until `let_in` or until it is evicted."""
        visitor = Visitor(hang_up, trio.CancelScope(deadline=deadline))
        self._waiting[visitor] = None
        if len(self._waiting) > self._most:
            oldest = next(iter(self._waiting))
            self.let_in(oldest)
            oldest.evict()
        return visitor

    def let_in(self, visitor: Visitor) -> None:
        """It waits no more."""
        self._waiting.pop(visitor, None)
