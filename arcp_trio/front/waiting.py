"""The bound on connections that have not opened a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs
import trio

from arcp_trio.runtime.access import address_of


@attrs.define(eq=False)
class Visitor:
    """A connection that has not opened a session."""

    address: str
    """Where it comes from, as `address_of` says."""
    hang_up: Callable[[], None]
    """Shuts its socket down, at once and without waiting for anything."""
    scope: trio.CancelScope
    """The scope of all tasks of the connection, with the deadline of its opening handshake."""
    place: int
    """Visitors that came before it."""
    evicted: bool = False
    """Whether it had to make room for another visitor."""
    answered: bool = False
    """Whether it has been refused, or has got its page: only the end of the connection is due."""

    def evict(self) -> None:
        """End the connection."""
        self.evicted = True
        self.hang_up()
        self.scope.cancel(reason="too many connections wait for a session")


_Visitors: TypeAlias = dict[Visitor, None]  # the oldest first


class WaitingRoom:
    """Holds a bounded number of visitors: when one more comes, one is evicted.

    It is the oldest one of the address that has most: a flood from one address closes its own
    connections, and visitors from elsewhere keep their place.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[str, _Visitors] = {}
        """The visitors of each address that has any."""
        self._count = 0
        self._entered = 0

    def enter(self, peer: str, hang_up: Callable[[], None], deadline: float) -> Visitor:
        """Add a visitor, which is there until it leaves or is evicted."""
        address, scope = address_of(peer), trio.CancelScope(deadline=deadline)
        visitor = Visitor(address, hang_up, scope, self._entered)
        self._waiting.setdefault(address, {})[visitor] = None
        self._count += 1
        self._entered += 1
        if self._count > self._most:
            evicted = self._to_evict()
            self.leave(evicted)
            evicted.evict()
        return visitor

    def leave(self, visitor: Visitor) -> None:
        """Forget a visitor, if it is still here: it has a session, or its connection is closed."""
        beside = self._waiting.get(visitor.address, {})
        if visitor not in beside:
            return
        del beside[visitor]
        self._count -= 1
        if not beside:
            del self._waiting[visitor.address]

    def _to_evict(self) -> Visitor:
        """Return the oldest visitor of the address with most; of such addresses, the oldest."""
        most = max(map(len, self._waiting.values()))
        oldest = (next(iter(each)) for each in self._waiting.values() if len(each) == most)
        return min(oldest, key=lambda visitor: visitor.place)
