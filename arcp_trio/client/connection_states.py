"""Tells a program each time its client loses its connection and gets another one.

The states form a chain, each linked to its successor. A listener holds the state it has seen last,
so a slow one misses nothing, and states that every listener has seen are garbage.
"""

from __future__ import annotations

import attrs
import trio


@attrs.define(eq=False)
class _State:
    connected: bool
    over: trio.Event = attrs.field(factory=trio.Event)
    """Set when another state follows, or when the session has ended."""
    successor: _State | None = None


class ConnectionStates:
    """The states of one client's connection. The first one is connected."""

    def __init__(self) -> None:
        self._current = _State(connected=True)
        self.next_attempt: float | None = None
        """When the client tries to connect again, on Trio's clock, while it waits for that."""

    def change(self, *, connected: bool) -> None:
        """Begin another state, unless this is the current one."""
        if connected != self._current.connected:
            before, self._current = self._current, _State(connected=connected)
            before.successor = self._current
            before.over.set()

    def end(self) -> None:
        """End the current state without another one: the session has ended."""
        self._current.over.set()

    def listen(self) -> ConnectionStateIterator:
        """Return an iterator over the current state and all that follow it."""
        return ConnectionStateIterator(self._current)


class ConnectionStateIterator:
    """Iterates over whether there is a connection, up to the end of the session."""

    # Not an async generator: Trio wants one that is left by `break` to be closed.

    def __init__(self, first: _State) -> None:
        self._seen = _State(connected=first.connected, successor=first)
        self._seen.over.set()

    def __aiter__(self) -> ConnectionStateIterator:
        return self

    async def __anext__(self) -> bool:
        await self._seen.over.wait()
        if self._seen.successor is None:
            raise StopAsyncIteration
        self._seen = self._seen.successor
        return self._seen.connected
