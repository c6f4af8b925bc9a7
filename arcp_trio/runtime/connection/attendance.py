"""The connections that a runtime attends to, until the last of them has ended."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.connection.connection import Connection
from arcp_trio.runtime.connection.welcomes import Welcomes
from arcp_trio.runtime.metrics import Failure
from arcp_trio.runtime.tasks import start_clean
from arcp_trio.runtime.wake import Wake

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.farewell import Farewell
    from arcp_trio.runtime.session.sessions import Sessions
    from arcp_trio.transport.base import Transport

log = logging.getLogger(__name__)


class Attendance:
    """Runs the connections of one runtime, and knows which there are."""

    def __init__(self, core: Core, sessions: Sessions, nursery: trio.Nursery) -> None:
        self._core = core
        self._sessions = sessions
        self._nursery = nursery
        self._welcomes = Welcomes(core, sessions.jobs)
        self._connections: set[Connection] = set()
        self._one_left = Wake()

    def __len__(self) -> int:
        return len(self._connections)

    def start(self, serve: Callable[[], Awaitable[None]], name: str) -> None:
        """Run what comes to a connection in a task of its own: its failure ends nothing else."""
        start_clean(self._nursery, self._fence, serve, name, name=name)

    async def _fence(self, serve: Callable[[], Awaitable[None]], name: str) -> None:
        try:
            await serve()
        except Exception:
            # An exception boundary: nothing that a peer sends may end more than its connection.
            log.exception("connection failed", extra={"task": name})
            self._core.metrics.connection_failed(Failure.FAULT)

    async def attend(
        self, transport: Transport, deadline: float, welcomed: Callable[[], None] | None
    ) -> None:
        """Run one connection until it ends."""
        connection = Connection(self._core, self._sessions, self._welcomes, transport, welcomed)
        self._connections.add(connection)
        try:
            await connection.run(deadline)
        finally:
            self._connections.remove(connection)
            self._one_left.set()

    def end_without_session(self, farewell: Farewell) -> None:
        """Have each connection end that has no session."""
        for connection in self._connections:
            connection.end_without_session(farewell)

    def end_all(self, farewell: Farewell) -> None:
        """Have each connection end at once: nothing is sent but the Close."""
        for connection in self._connections:
            connection.end_now(farewell)

    async def none_left(self) -> None:
        """Wait until all connections have ended."""
        while self._connections:
            await self._one_left.wait()
