"""Hands on to the program what arrives: events to `on_event`, replies to their callers.

Everything is handed on in the order of arrival: a reply reaches its caller after everything that
arrived before it, so that no event is outstanding when `await job.result()` returns. The exception
is a caller inside an event handler. The events that arrived before its reply wait for that very
handler to return, so such a caller gets its reply as soon as it arrives.
"""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from typing import Generic, TypeAlias, TypeVar, cast

import attrs
import trio

from arcp_trio.client.errors import afresh
from arcp_trio.client.events import Event, EventCheckpoints, EventHandler
from arcp_trio.client.unread import UnreadEvents

T = TypeVar("T")

_in_handler: ContextVar[bool] = ContextVar("_in_handler", default=False)
"""Whether this code runs inside an event handler, of whichever client.

Tasks inherit the value, so a handler may make its calls from a nursery of its own.
"""


@attrs.define(eq=False)
class Reply(Generic[T]):
    """A value that the network is to bring. `Delivery` settles it, once."""

    arrived: trio.Event = attrs.field(factory=trio.Event, init=False)
    in_turn: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when everything that arrived before the reply has been handed on."""
    value: T | None = attrs.field(default=None, init=False)
    error: Exception | None = attrs.field(default=None, init=False)

    async def wait(self) -> T:
        """Wait until the caller may have the reply, and return or raise it."""
        await (self.arrived if _in_handler.get() else self.in_turn).wait()
        return self.get()

    def get(self) -> T:
        """Return the value that has arrived, or raise the error."""
        if self.error is not None:
            raise afresh(self.error)
        return cast("T", self.value)


_Item: TypeAlias = "tuple[Event, int, int] | trio.Event"
"""Either an event with its size and the number up to which all was read then, or a turn to give."""


class Delivery:
    """Keeps the order for one client. Without an event handler everything is handed on at once."""

    def __init__(self, handler: EventHandler | None, unread: UnreadEvents) -> None:
        self._handler = handler
        self._unread = unread
        self._processed = 0
        # Bounded by `unread`: at its bound the connection stops reading.
        self._items: deque[_Item] = deque()
        self._filled = trio.lowlevel.ParkingLot()
        self._checkpoints = EventCheckpoints()

    def processed(self, top: int) -> int:
        """Return the number up to which all is handed on, where `top` is the last number read."""
        return self._processed if self._items else top

    # -- what arrives

    def event(self, event: Event, size: int, top: int) -> None:
        """Hand on an event of `size` bytes, in its turn."""
        if self._handler is not None:
            self._unread.add(size)
            self._put((event, size, top))

    def succeed(self, reply: Reply[T], value: T) -> None:
        """Settle a reply with a value."""
        reply.value = value
        self._settled(reply)

    def fail(self, reply: Reply[T], error: Exception) -> None:
        """Settle a reply with an error."""
        reply.error = error
        self._settled(reply)

    def _settled(self, reply: Reply[T]) -> None:
        reply.arrived.set()
        if self._handler is None:
            reply.in_turn.set()
        else:
            self._put(reply.in_turn)

    def _put(self, item: _Item) -> None:
        self._items.append(item)
        if self._filled:
            self._filled.unpark()

    # -- handing on

    async def run(self) -> None:
        """Hand on one item at a time, until the event handler raises."""
        handler = self._handler
        if handler is None:
            return
        _in_handler.set(True)
        while True:
            while not self._items:
                await self._filled.park()
            item = self._items[0]  # removed only when handled: see `processed`
            if isinstance(item, trio.Event):
                self._items.popleft()
                item.set()
                # Let the caller go on before the next event is handled. Trio shuffles the tasks of
                # a round, so the caller may come after this task in the first one.
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
            else:
                event, size, top = item
                await handler(event)
                self._unread.take(size)
                self._processed = top
                self._items.popleft()
                await self._checkpoints.next()

    def end(self) -> None:
        """Drop the events, and hand on replies at once from now on."""
        self._handler = None
        for item in self._items:
            if isinstance(item, trio.Event):
                item.set()
        self._items.clear()
