"""What the reader puts down for one session, and the one task that takes it up.

Everything that concerns the session goes through its queue: updates, requests of the agent, answers
to requests of the program. One task takes them out, so that they are seen in the order in which the
agent wrote them. The reader keeps the queue's bound: it waits for room. An update that waits in a
turn for the program takes room still.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

import trio
from attrs import frozen

from arcp_trio.acp.connection import Connection
from arcp_trio.acp.limits import Limits
from arcp_trio.acp.requests import (
    PERMISSION,
    FileRequest,
    Handler,
    OpenRequests,
    PermissionRequest,
    Request,
    Stream,
    TerminalRequest,
)
from arcp_trio.acp.sent_request import SentRequest
from arcp_trio.acp.turn import Turn
from arcp_trio.acp.updates import Update

if TYPE_CHECKING:
    from arcp_trio.acp.session import Session, UpdateHandler

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Request)

OutsideHandler: TypeAlias = "Callable[[Session, Update | Request], Awaitable[object]]"
"""What is called with what comes outside of turns."""


@frozen
class Handlers:
    """What the program has for what comes from the agent."""

    permission: Handler[PermissionRequest]
    files: Handler[FileRequest]
    terminals: Handler[TerminalRequest]
    on_update: UpdateHandler | None
    outside: OutsideHandler | None = None
    """Called with each update that belongs to no turn, and with each request that is to be seen in
    the stream of its turn and has none; in order, one at a time for each session."""

    def of(self, kind: type[Request]) -> Handler[Request]:
        """Return the handler of one kind of requests."""
        if kind is PermissionRequest:
            return cast("Handler[Request]", self.permission)
        return cast("Handler[Request]", self.files if kind is FileRequest else self.terminals)


@frozen
class Surroundings:
    """What the sessions of one agent share."""

    connection: Connection
    handlers: Handlers
    limits: Limits
    requests: OpenRequests
    nursery: trio.Nursery


_Content: TypeAlias = Update | Request | SentRequest


@frozen
class _Item:
    """A place in the queue."""

    what: _Content
    size: int
    turn: Turn | None


class SessionQueue:
    """The queue of one session, and its open turn."""

    def __init__(self, session_id: str, surroundings: Surroundings) -> None:
        self.session_id: Final = session_id
        self.surroundings: Final = surroundings
        self.last_heard = trio.current_time()
        """When the last update came."""
        self.turn: Turn | None = None
        """The turn of which the reader has not met the answer."""
        self._worker: trio.lowlevel.Task | None = None
        self._in, self._out = trio.open_memory_channel[_Item](math.inf)
        self._items = 0
        self._bytes = 0
        self._room = trio.lowlevel.ParkingLot()
        self._ended = False

    def cancel(self) -> None:
        """Have the agent end what it is doing; its open permission requests are not decided."""
        self.surroundings.connection.notify("session/cancel", {"sessionId": self.session_id})
        if self.turn is not None:
            self.turn.stopping = True
        for request in self.surroundings.requests.of(self.session_id):
            if isinstance(request, PermissionRequest):
                request.cancel()

    def check_place(self) -> None:
        """Raise `RuntimeError` in an update handler of this session, which would wait for itself.

        That includes tasks that the handler waits for.
        """
        task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        while task is not None:
            if task is self._worker:
                raise RuntimeError(
                    "an update handler cannot wait for its own session: what it waits for comes "
                    "after the update that it handles"
                )
            task = task.parent_nursery.parent_task if task.parent_nursery else None

    def leave_room(self, size: int) -> None:
        """Make room for more to be read."""
        self._items -= 1
        self._bytes -= size
        self._room.unpark_all()

    # -- for the reader

    async def take_update(self, update: Update, size: int) -> None:
        """Put an update into the queue."""
        self.last_heard = trio.current_time()
        await self._put(update, size, self._turn_of_line())

    async def take_request(self, request: Request, size: int) -> None:
        """Put a request of the agent into the queue."""
        await self._put(request, size, self._turn_of_line())

    async def take_answer(self, sent: SentRequest) -> None:
        """Put the answer to a request of the program into the queue."""
        await self._put(sent, 0, None)

    async def take_stop_reason(self, sent: SentRequest, turn: Turn) -> None:
        """Put the answer to a prompt into the queue."""
        self.turn = None  # before anything else is read, so that no later line is the turn's
        turn.answered.set()
        await self._put(sent, 0, turn)

    def end(self) -> None:
        """End once the queue is empty, and take nothing more."""
        self._ended = True
        self._room.unpark_all()
        self._in.close()

    def _turn_of_line(self) -> Turn | None:
        turn = self.turn
        # What came before the prompt was sent may be read after it.
        is_later = turn is not None and self.surroundings.connection.arrivals > turn.arrivals
        return turn if is_later else None

    async def _put(
        self, what: Update | Request | SentRequest, size: int, turn: Turn | None
    ) -> None:
        connection = self.surroundings.connection
        while self._is_full(size) and not self._ended and connection.over is None:
            await self._room.park()
        if not self._ended:
            self._items += 1
            self._bytes += size
            self._in.send_nowait(_Item(what, size, turn))

    def _is_full(self, size: int) -> bool:
        limits = self.surroundings.limits
        return self._items > 0 and (
            self._items >= limits.queue_items or self._bytes + size > limits.queue_bytes
        )

    # -- the one consumer

    async def run(self, session: Session) -> None:
        """Take out one item after the other."""
        self._worker = trio.lowlevel.current_task()
        async for item in self._out:
            if not await self._consume(item, session):
                self.leave_room(item.size)

    async def _consume(self, item: _Item, session: Session) -> bool:
        """Return whether the item waits in the turn now."""
        match item.what:
            case Update() as update:
                await self._tell(session, update)
                if item.turn is None:
                    await self._see_outside(session, update)
                return item.turn is not None and item.turn.put(update, item.size)
            case Request() as request:
                return await self._hand_over(session, request, item)
            case SentRequest() as sent:
                sent.settled.set()
                if item.turn is not None:
                    item.turn.end(sent.result)
                return False

    async def _tell(self, session: Session, update: Update) -> None:
        on_update = self.surroundings.handlers.on_update
        if on_update is None:
            return
        try:
            await on_update(session, update)
        except Exception:
            log.exception(
                "update handler failed", extra={"session": session.id, "kind": update.kind}
            )

    async def _see_outside(self, session: Session, what: Update | Request) -> bool:
        """Return whether the program has taken it."""
        outside = self.surroundings.handlers.outside
        if outside is None:
            return False
        try:
            await outside(session, what)
        except Exception:
            log.exception("handler failed", extra={"session": session.id})
            return False
        return True

    async def _hand_over(self, session: Session, request: Request, item: _Item) -> bool:
        if request.answered:
            return False
        if request.method == PERMISSION and item.turn is not None and item.turn.stopping:
            request.give_up()
            return False
        handler = self.surroundings.handlers.of(type(request))
        if handler is None or isinstance(handler, Stream):
            if item.turn is not None and item.turn.put(request, item.size):
                return True
            if item.turn is not None or not await self._see_outside(session, request):
                request.give_up()
            return False
        name = f"handler of {request.method}"
        self.surroundings.nursery.start_soon(_handle, request, handler, name=name)
        return False


async def _handle(request: R, handler: Callable[[R], Awaitable[object]]) -> None:
    try:
        with request.life:
            await handler(request)
    except Exception:
        log.exception("request handler failed", extra={"method": request.method})
    finally:
        request.give_up()
