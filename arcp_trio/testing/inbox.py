"""What a client has read and not yet handed on: ordering and back-pressure.

Everything is handed on by one task, in the order of arrival. An answer reaches its caller only
after everything that arrived before it was handed on, so that after `await job.result()` no event
is outstanding. The exception is a caller that runs inside an event handler: what came before its
answer is waiting for that handler to return, so it gets the answer as soon as it has arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import attrs
import trio

from arcp_trio.testing.frames import Frame
from arcp_trio.transport.base import TransportClosed
from arcp_trio.wire.json import JsonObject

UNREAD_EVENTS: Final = 1_024
"""Past these, nothing more is read: the network's back-pressure reaches the runtime."""

_in_handler: ContextVar[bool] = ContextVar("_in_handler", default=False)
"""Whether this code runs on behalf of an event handler, of whichever client.

Tasks inherit it, so a handler may make its calls from a nursery of its own.
"""


@attrs.frozen(kw_only=True)
class Event:
    """One event of a job."""

    seq: int
    job_id: str
    kind: str
    body: JsonObject
    ts: str


@attrs.define(eq=False)
class Answer:
    """Something that the network is to bring."""

    frame: Frame | None = None
    lost: TransportClosed | None = None
    """Why it never came."""
    arrived: trio.Event = attrs.field(factory=trio.Event)
    in_turn: trio.Event = attrs.field(factory=trio.Event)
    """Set when everything that arrived before it has been handed on."""

    def get(self) -> Frame:
        """Return the frame that has arrived."""
        if self.frame is None:
            raise self.lost or TransportClosed()
        return self.frame


class Inbox:
    """Events and answers, between the task that reads and the task that hands on.

    `to_handler` says that events go to a handler, which is waited for, and not to buffers.
    """

    def __init__(self, *, to_handler: bool) -> None:
        self._to_handler = to_handler
        self._items: deque[Event | Callable[[], None]] = deque()
        self._filled = trio.lowlevel.ParkingLot()
        self._unread = 0
        self._waiting = 0
        self._room = trio.lowlevel.ParkingLot()

    async def room(self) -> None:
        """Wait until another frame may be read."""
        while self._unread >= UNREAD_EVENTS and not self._waiting:
            await self._room.park()

    def put_event(self, event: Event) -> None:
        """Add an event; it counts as unread until `event_read`."""
        self._unread += 1
        self._put(event)

    def event_read(self) -> None:
        """Make room for another event."""
        self._unread -= 1
        self._room.unpark_all()

    def put_answer(
        self, answer: Answer, came: Frame | TransportClosed, in_turn: Callable[[], None]
    ) -> None:
        """Settle an answer; `in_turn` is called after everything before has been handed on."""
        if isinstance(came, TransportClosed):
            answer.lost = came
        else:
            answer.frame = came
        answer.arrived.set()
        self._put(in_turn)

    async def hand_on_all(self, hand_on: Callable[[Event], Awaitable[None]]) -> None:
        """Call `hand_on` with each event, one at a time."""
        _in_handler.set(True)
        while True:
            while not self._items:
                await self._filled.park()
            item = self._items.popleft()
            if isinstance(item, Event):
                await hand_on(item)
            else:
                item()

    async def wait(self, answer: Answer) -> Frame:
        """Wait for an answer, until it is this caller's turn to have it.

        Raises:
            TransportClosed: it will not come.
        """
        with self.unbounded():
            await (answer.arrived if _in_handler.get() else answer.in_turn).wait()
        return answer.get()

    @contextmanager
    def unbounded(self) -> Generator[None, None, None]:
        """Let reading go on, however much is unread, while this caller waits for what is behind it.

        A handler's wait is such a case: until it returns, no event is handed on. Without a handler
        anybody's is, for this may be the very task that would read the buffered events. Stopping
        would be a deadlock here, and nothing is ever dropped.
        """
        counts = _in_handler.get() or not self._to_handler
        self._waiting += counts
        self._room.unpark_all()
        try:
            yield
        finally:
            self._waiting -= counts

    def _put(self, item: Event | Callable[[], None]) -> None:
        self._items.append(item)
        self._filled.unpark()
