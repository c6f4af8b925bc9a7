"""Hands on what was read: events to `on_event`, answers to their callers, in the order of arrival.

An answer reaches its caller only after everything that arrived before it was handed on, so that
after `await job.result()` no event is outstanding. The exception is a caller that runs on behalf of
an event handler: what came before its answer is waiting for that very handler to return, so it gets
the answer as soon as it has arrived.
"""

from __future__ import annotations

import math
from contextlib import suppress
from contextvars import ContextVar
from typing import Generic, TypeAlias, TypeVar

import attrs
import trio

from arcp_trio.client.errors import afresh
from arcp_trio.client.events import Event, EventHandler
from arcp_trio.client.room import Room

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


@attrs.frozen
class _Handed:
    event: Event
    size: int
    top: int
    """All numbers up to this one had been read."""


_Item: TypeAlias = "_Handed | trio.Event"


class Delivery:
    """One client's. Without an event handler everything is handed on as it comes."""

    def __init__(self, handler: EventHandler | None, room: Room) -> None:
        self._handler = handler
        self._room = room
        self._processed = 0
        self._behind = 0  # items that are not handed on yet
        # Bounded by the room: its reader does not read while there is none.
        self._send, self._receive = trio.open_memory_channel[_Item](math.inf)

    def processed(self, top: int) -> int:
        """Which number was handed on last, when this one was read last."""
        return self._processed if self._behind else top

    def event(self, event: Event, size: int, top: int) -> None:
        """Hand on an event, in its turn."""
        if self._handler is not None:
            self._room.add(size)
            self._behind += 1
            self._send.send_nowait(_Handed(event, size, top))

    def settled(self, answer: Answer[T]) -> None:
        """Let the caller have the answer, in its turn."""
        if self._handler is None:
            answer.in_turn.set()
        else:
            self._behind += 1
            self._send.send_nowait(answer.in_turn)

    async def run(self) -> None:
        """Hand on, one at a time; what the event handler raises ends it."""
        if self._handler is None:
            return
        _in_handler.set(True)
        async for item in self._receive:
            if isinstance(item, trio.Event):
                item.set()
            else:
                await self._handler(item.event)
                self._room.take(item.size)
                self._processed = item.top
            self._behind -= 1

    def end(self) -> None:
        """Hand on answers alone from now on, and at once: nobody takes events any more."""
        self._handler = None
        with suppress(trio.WouldBlock):
            while True:
                item = self._receive.receive_nowait()
                if isinstance(item, trio.Event):
                    item.set()
        self._behind = 0
