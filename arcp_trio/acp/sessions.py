"""The sessions with one agent, and the way of what comes to the one that it is for."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import trio
from attrs import frozen

from arcp_trio.acp.connection import Connection, Peer
from arcp_trio.acp.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Busy
from arcp_trio.acp.jsonrpc import IncomingRequest, Notification, error_line
from arcp_trio.acp.limits import Limits
from arcp_trio.acp.queue import Handlers, SessionQueue, Surroundings
from arcp_trio.acp.requests import REQUESTS, OpenRequests, fault_in
from arcp_trio.acp.session import Session
from arcp_trio.acp.updates import Update, update_of
from arcp_trio.transport.stdio import LineTransport
from arcp_trio.wire.json import JsonObject, is_object


@frozen
class OpenSession:
    """A session as the program sees it, and its queue."""

    session: Session
    queue: SessionQueue


@frozen
class _Early:
    """An update of a session that the agent has begun and has not told of yet."""

    session_id: str
    update: Update
    size: int


class Sessions:
    """The open sessions; what the agent sends about any other is refused, or not looked at."""

    def __init__(
        self,
        transport: LineTransport,
        peer: Peer,
        handlers: Handlers,
        limits: Limits,
        nursery: trio.Nursery,
    ) -> None:
        self.connection: Final = Connection(transport, peer, self, limits)
        self._handlers = handlers
        self._limits = limits
        self._nursery = nursery
        self._requests = OpenRequests(limits.requests, limits.request_bytes)
        self._surroundings = Surroundings(
            self.connection, handlers, limits, self._requests, nursery
        )
        self._open: dict[str, OpenSession] = {}
        self._beginning = 0
        """The requests for new sessions that have no answer yet."""
        self._early: list[_Early] = []

    def open(self, session_id: str, cwd: str) -> OpenSession:
        """Open a session, so that it gets what comes from now on.

        Raises:
            Busy: it is open.
        """
        if session_id in self._open:
            raise Busy(f"the session {session_id} is open")
        queue = SessionQueue(session_id, self._surroundings)
        opened = OpenSession(Session(session_id, cwd, queue), queue)
        self._open[session_id] = opened
        self._nursery.start_soon(queue.run, opened.session, name=f"ACP session {session_id}")
        return opened

    def close(self, opened: OpenSession) -> None:
        """Forget a session that could not be continued."""
        del self._open[opened.session.id]
        opened.queue.end()

    @contextmanager
    def beginning(self) -> Generator[None, None, None]:
        """Keep what comes about unknown sessions during the block, in which one is begun."""
        self._beginning += 1
        try:
            yield
        finally:
            self._beginning -= 1
            if not self._beginning:
                self._early.clear()

    def check_place(self) -> None:
        """Raise `RuntimeError` in an update handler, as what comes after its update waits for it.

        That includes tasks that the handler waits for.
        """
        for opened in self._open.values():
            opened.queue.check_place()

    async def adopt(self, queue: SessionQueue) -> None:
        """Give a new session what has come about it before."""
        early = [each for each in self._early if each.session_id == queue.session_id]
        self._early = [each for each in self._early if each.session_id != queue.session_id]
        for each in early:
            await queue.take_update(each.update, each.size)

    # -- for the reader

    async def take_notification(self, message: Notification, size: int) -> None:
        """Take an update, or the agent's word that it wants no answer; pass over all else."""
        if message.method == "$/cancel_request":
            self._requests.withdraw(message.params.get("requestId"))
        elif message.method == "session/update":
            session_id, raw = message.params.get("sessionId"), message.params.get("update")
            update = update_of(raw) if is_object(raw) else None
            if update is None or not isinstance(session_id, str):
                raise ValueError("an update without a session or a kind")
            opened = self._open.get(session_id)
            if opened is not None:
                await opened.queue.take_update(update, size)
            elif self._has_room_for_early(size):
                self._early.append(_Early(session_id, update, size))

    async def take_request(self, message: IncomingRequest, size: int) -> None:
        """Give a request to its session, or refuse it.

        Raises:
            ValueError: an earlier request has the same id, and no answer yet.
        """
        kind = REQUESTS.get(message.method)
        if kind is None or self._handlers.of(kind) is None:
            self._refuse(message, METHOD_NOT_FOUND, f"{message.method} is not offered")
            return
        params: JsonObject | None = message.params
        fault = fault_in(message)
        if params is None or fault is not None:
            self._refuse(message, INVALID_PARAMS, fault or "")
            return
        session_id = params.get("sessionId")
        opened = self._open.get(session_id) if isinstance(session_id, str) else None
        if opened is None:
            self._refuse(message, INVALID_PARAMS, "there is no such session")
            return
        request = kind(message.id, message.method, params, opened.session, self.connection.send)
        if self._requests.admit(message.id, request, size):
            await opened.queue.take_request(request, size)
        else:
            self._refuse(message, INTERNAL_ERROR, "too many requests have no answer yet")

    def end(self) -> None:
        """Wake what waits for the agent, as it has ended."""
        self._requests.end()

    def _refuse(self, message: IncomingRequest, code: int, words: str) -> None:
        self.connection.send(error_line(message.id, code, words))

    def _has_room_for_early(self, size: int) -> bool:
        held = sum(each.size for each in self._early)
        return (
            self._beginning > 0
            and len(self._early) < self._limits.early_updates
            and held + size <= self._limits.queue_bytes
        )
