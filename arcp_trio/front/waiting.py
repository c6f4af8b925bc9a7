"""How many connections may be open that have not opened a session."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import attrs
import trio


@attrs.define(eq=False)
class Visitor:
    """A connection on its way to its session."""

    hang_up: Callable[[], None]
    """Closes its socket, at once and without waiting for anything."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
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

    @contextmanager
    def enter(self, hang_up: Callable[[], None]) -> Generator[Visitor]:
        """Be a visitor in this block, which eviction cancels, until `let_in` at the latest."""
        visitor = Visitor(hang_up)
        self._waiting[visitor] = None
        if len(self._waiting) > self._most:
            oldest = next(iter(self._waiting))
            self.let_in(oldest)
            oldest.evict()
        try:
            with visitor.scope:
                yield visitor
        finally:
            self.let_in(visitor)

    def let_in(self, visitor: Visitor) -> None:
        """It waits no more."""
        self._waiting.pop(visitor, None)
