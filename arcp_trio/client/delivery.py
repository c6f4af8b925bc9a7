"""Hands on what was read: events to `on_event`, answers to their callers, in the order of arrival.

An answer reaches its caller only after everything that arrived before it was handed on, so that
after `await job.result()` no event is outstanding. The exception is a caller that runs on behalf of
an event handler: what came before its answer is waiting for that very handler to return, so it gets
the answer as soon as it has arrived.
"""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from typing import Generic, TypeAlias, TypeVar

import attrs
import trio

from arcp_trio.client.errors import afresh
from arcp_trio.client.events import Event, EventHandler
from arcp_trio.client.room import Room
from arcp_trio.client.turns import Turns

T = TypeVar("T")

_in_handler: ContextVar[bool] = ContextVar("_in_handler", default=False)
"""Whether this code runs on behalf of an event handler, of whichever client.

Tasks inherit it, so a handler may make its calls from a nursery of its own.
"""


@attrs.define(eq=False)
class Answer(Generic[T]):
    """Something that the network is to bring; settled once."""

    arrived: trio.Event = attrs.field(factory=trio.Event)
    in_turn: trio.Event = attrs.field(factory=trio.Event)
    """Set when everything that arrived before it has been handed on."""
    value: T | None = None
    _error: Exception | None = None

    async def wait(self) -> T:
        """Wait until it is this caller's turn to have it, and return or raise it."""
        await (self.arrived if _in_handler.get() else self.in_turn).wait()
        return self.get()

    def get(self) -> T:
        """Return or raise what has arrived."""
        if self._error is not None:
            raise afresh(self._error)
        return self.value  # type: ignore[return-value] # set, or T allows None

    def succeed(self, value: T) -> None:
        """Settle it."""
        self.value = value
        self.arrived.set()

    def fail(self, error: Exception) -> None:
        """Settle it the other way."""
        self._error = error
        self.arrived.set()


_Item: TypeAlias = "tuple[Event, int, int] | trio.Event"
"""An event with its size and the number up to which all had been read; or whom to let go on."""


class Delivery:
    """One client's. Without an event handler everything is handed on as it comes."""

    def __init__(self, handler: EventHandler | None, room: Room) -> None:
        self._handler = handler
        self._room = room
        self._processed = 0
        # Bounded by the room: its reader does not read while there is none.
        self._items: deque[_Item] = deque()
        self._filled = trio.lowlevel.ParkingLot()
        self._turns = Turns()

    def processed(self, top: int) -> int:
        """Which number was handed on last, when this one was read last."""
        return self._processed if self._items else top

    def event(self, event: Event, size: int, top: int) -> None:
        """Hand on an event, in its turn."""
        if self._handler is not None:
            self._room.add(size)
            self._put((event, size, top))

    def settled(self, answer: Answer[T]) -> None:
        """Let the caller have the answer, in its turn."""
        if self._handler is None:
            answer.in_turn.set()
        else:
            self._put(answer.in_turn)

    async def run(self) -> None:
        """Hand on, one at a time; what the event handler raises ends it."""
        handler = self._handler
        if handler is None:
            return
        _in_handler.set(True)
        while True:
            while not self._items:
                await self._filled.park()
            item = self._items[0]  # it is behind until it is handed on
            if isinstance(item, trio.Event):
                self._items.popleft()
                item.set()
                # The caller goes on before the next event is handled. In the first round it may
                # have its turn behind us.
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
            else:
                event, size, top = item
                await handler(event)
                self._room.take(size)
                self._processed = top
                self._items.popleft()
                await self._turns.take()

    def end(self) -> None:
        """Hand on answers alone from now on, and at once: nobody takes events any more."""
        self._handler = None
        for item in self._items:
            if isinstance(item, trio.Event):
                item.set()
        self._items.clear()

    def _put(self, item: _Item) -> None:
        self._items.append(item)
        if self._filled:
            self._filled.unpark()
