"""One session with an agent: its queue, the one task that consumes it, and its turn.

The reader puts everything that concerns the session into its queue: updates, requests of the agent,
answers to requests of the program. One task takes them out, so that they are seen in the order in
which the agent wrote them. The queue is bounded by the reader, which waits for room; an update that
waits in a turn for the program takes room still.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar, cast

import trio
from attrs import frozen

from arcp_trio.acp.connection import Connection, SentRequest
from arcp_trio.acp.errors import Busy
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
from arcp_trio.acp.turn import Turn
from arcp_trio.acp.updates import Update
from arcp_trio.wire.json import Json

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Request)
UpdateHandler: TypeAlias = "Callable[[Session, Update], Awaitable[object]]"
Prompt: TypeAlias = str | Sequence[Mapping[str, Json]]
"""Text, or content blocks."""


@frozen
class Handlers:
    """What the program has for what comes from the agent."""

    permission: Handler[PermissionRequest]
    files: Handler[FileRequest]
    terminals: Handler[TerminalRequest]
    on_update: UpdateHandler | None

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


@frozen
class _Item:
    """A place in the queue."""

    what: Update | Request | SentRequest
    size: int
    turn: Turn | None


class Session:
    """A conversation with an agent."""

    def __init__(self, id_: str, cwd: str, surroundings: Surroundings) -> None:
        self.id: Final = id_
        self.cwd: Final = cwd
        self.last_heard = trio.current_time()
        """When the last update came."""
        self._connection = surroundings.connection
        self._handlers = surroundings.handlers
        self._limits = surroundings.limits
        self._requests = surroundings.requests
        self._nursery = surroundings.nursery
        self._turn: Turn | None = None
        """The open turn: the reader has not met the answer to its prompt."""
        self._worker: trio.lowlevel.Task | None = None
        self._queue_in, self._queue_out = trio.open_memory_channel[_Item](math.inf)
        self._items = 0
        self._bytes = 0
        self._room = trio.lowlevel.ParkingLot()
        self._ended = False

    def prompt(self, content: Prompt) -> Turn:
        """Give the agent something to do, and return the turn that begins with it.

        Args:
            content: text, or a list of content blocks.

        Raises:
            Busy: the turn before this one is not over.
            AgentGone: the agent has ended.
        """
        self.check_place()
        if self._turn is not None:
            raise Busy("the session's turn is not over")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        turn = Turn(self, self._connection.arrivals, self._limits.cancel_seconds)

        async def deliver(sent: SentRequest) -> None:
            self._turn = None  # before anything else is read, so that no later line is the turn's
            turn.answered.set()
            await self._put(sent, 0, turn)

        params = {"sessionId": self.id, "prompt": blocks}
        self._connection.request("session/prompt", params, deliver)
        self._turn = turn
        return turn

    def cancel(self) -> None:
        """Have the agent end what it is doing; its open permission requests are not decided."""
        self._connection.notify("session/cancel", {"sessionId": self.id})
        if self._turn is not None:
            self._turn.stopping = True
        for request in self._requests.of(self):
            if isinstance(request, PermissionRequest):
                request.cancel()

    async def request(self, method: str, **params: Json) -> Json:
        """Send any other request about this session, and return its result.

        Raises:
            AgentError: the agent has answered with an error.
            AgentGone: the agent has ended.
            TimedOut: the agent has not answered in time.
        """
        self.check_place()
        fields = {"sessionId": self.id, **params}
        sent = self._connection.request(method, fields, self.deliver)
        return await self._connection.wait(sent, self._limits.request_seconds)

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

    # -- for the reader

    async def take_update(self, update: Update, size: int) -> None:
        """Put an update into the queue."""
        self.last_heard = trio.current_time()
        await self._put(update, size, self._turn_of_line())

    async def take_request(self, request: Request, size: int) -> None:
        """Put a request of the agent into the queue."""
        await self._put(request, size, self._turn_of_line())

    async def deliver(self, sent: SentRequest) -> None:
        """Put the answer to a request of the program into the queue."""
        await self._put(sent, 0, None)

    def end(self) -> None:
        """End once the queue is empty, and take up nothing more."""
        self._ended = True
        self._room.unpark_all()
        self._queue_in.close()

    def leave_room(self, size: int) -> None:
        """Make room for more to be read."""
        self._items -= 1
        self._bytes -= size
        self._room.unpark_all()

    def _turn_of_line(self) -> Turn | None:
        turn = self._turn
        # What came before the prompt was sent may be read after it.
        return turn if turn is not None and self._connection.arrivals > turn.arrivals else None

    async def _put(
        self, what: Update | Request | SentRequest, size: int, turn: Turn | None
    ) -> None:
        while self._is_full(size) and not self._ended and self._connection.over is None:
            await self._room.park()
        if not self._ended:
            self._items += 1
            self._bytes += size
            self._queue_in.send_nowait(_Item(what, size, turn))

    def _is_full(self, size: int) -> bool:
        limits = self._limits
        return self._items > 0 and (
            self._items >= limits.queue_items or self._bytes + size > limits.queue_bytes
        )

    # -- the one consumer

    async def run(self) -> None:
        """Consume the queue, one item after the other."""
        self._worker = trio.lowlevel.current_task()
        async for item in self._queue_out:
            if not await self._consume(item):
                self.leave_room(item.size)

    async def _consume(self, item: _Item) -> bool:
        """Return whether the item waits in the turn now."""
        match item.what:
            case Update() as update:
                await self._tell(update)
                return item.turn is not None and item.turn.put(update, item.size)
            case Request() as request:
                return self._hand_over(request, item)
            case SentRequest() as sent:
                sent.settled.set()
                if item.turn is not None:
                    item.turn.end(sent.result)
                return False

    async def _tell(self, update: Update) -> None:
        if self._handlers.on_update is None:
            return
        try:
            await self._handlers.on_update(self, update)
        except Exception:
            log.exception("update handler failed", extra={"session": self.id, "kind": update.kind})

    def _hand_over(self, request: Request, item: _Item) -> bool:
        if request.answered:
            return False
        if request.method == PERMISSION and item.turn is not None and item.turn.stopping:
            request.give_up()
            return False
        handler = self._handlers.of(type(request))
        if handler is None or isinstance(handler, Stream):
            if item.turn is not None and item.turn.put(request, item.size):
                return True
            request.give_up()
            return False
        self._nursery.start_soon(_handle, request, handler, name=f"handler of {request.method}")
        return False


async def _handle(request: R, handler: Callable[[R], Awaitable[object]]) -> None:
    try:
        with request.life:
            await handler(request)
    except Exception:
        log.exception("request handler failed", extra={"method": request.method})
    finally:
        request.give_up()
