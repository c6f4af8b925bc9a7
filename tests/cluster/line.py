"""The line between one node and its database, which a test can make fail at any message."""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qs, urlsplit, urlunsplit

import attrs
import trio

_CHUNK: Final = 65_536
_ASKS_FIRST: Final = (80877103, 80877104)
"""What begins a connection by asking for TLS or GSSAPI: the answer is one byte."""
_STEPS: Final = (b"E", b"Q", b"S", b"Z")
"""The messages Execute, Query and Sync, and the answers ErrorResponse and ReadyForQuery. Those in
between only prepare one of these."""


@attrs.define(eq=False)
class Trap:
    """Does something at the n-th message of a phase, which begins with a message that has a mark.

    The messages of both directions and of all connections of the node count from there on. Those
    that are already on their way when it is done still arrive.
    """

    mark: bytes
    at: int
    do: Callable[[Flow], Awaitable[object]]
    steps: bool = False
    """Only messages count that have the other side do something; see `_STEPS`."""
    seen: int = 0
    begun: bool = False
    sprung: trio.Event = attrs.field(factory=trio.Event)

    def is_at(self, message: bytes) -> bool:
        """Count a message; return whether it is the one."""
        self.begun = self.begun or self.mark in message
        if self.sprung.is_set() or not self.begun:
            return False
        if self.steps and message[:1] not in _STEPS:
            return False
        self.seen += 1
        return self.seen == self.at


@attrs.define(eq=False)
class Flow:
    """One direction of one connection."""

    source: trio.SocketStream
    sink: trio.SocketStream
    asks: bool
    """Whether it goes to the database."""
    swallows: bool = False
    """Whether nothing arrives any longer, although everything is taken."""
    buffer: bytearray = attrs.field(factory=bytearray)

    async def cut(self) -> None:
        """Cut the connection, both ways."""
        await trio.aclose_forcefully(self.source)
        await trio.aclose_forcefully(self.sink)

    async def swallow(self) -> None:
        """Let nothing arrive from now on."""
        self.swallows = True


class _Split:
    """Cuts the bytes of a connection into messages, by their heads."""

    def __init__(self) -> None:
        self._started = False
        self._bare_answers = 0

    def messages(self, flow: Flow) -> Iterator[bytes]:
        """Take the whole messages out of the buffer."""
        while size := self._size(flow):
            message = bytes(flow.buffer[:size])
            del flow.buffer[:size]
            if flow.asks and not self._started:
                (code,) = struct.unpack_from("!I", message, 4)
                self._started = code not in _ASKS_FIRST
                self._bare_answers += not self._started
            yield message

    def _size(self, flow: Flow) -> int:
        """Return the size of the next message, 0 as long as it is not whole."""
        if not flow.asks and self._bare_answers and flow.buffer:
            self._bare_answers -= 1
            return 1
        kind = 1 if self._started or not flow.asks else 0
        if len(flow.buffer) < kind + 4:
            return 0
        size = kind + int(struct.unpack_from("!I", flow.buffer, kind)[0])
        return size if len(flow.buffer) >= size else 0


class _Gate:
    """Holds up what comes while it is shut."""

    def __init__(self) -> None:
        self._opened = trio.Event()
        self._opened.set()

    def shut(self) -> None:
        if self._opened.is_set():
            self._opened = trio.Event()

    def open(self) -> None:
        self._opened.set()

    async def passed(self) -> None:
        await self._opened.wait()


class DatabaseLine:
    """Takes a node's connections to the database, and fails as a test wants."""

    def __init__(self, database: str) -> None:
        self.database = database
        """The URL of the database that new connections go to."""
        self.delay = 0.0
        """Seconds that bytes take, each way."""
        self.trap: Trap | None = None
        self._gates = {True: _Gate(), False: _Gate()}
        self._connections: set[Flow] = set()
        self._port = 0

    @property
    def url(self) -> str:
        """The database's URL for the node."""
        parts = urlsplit(self.database)
        user = f"{parts.username}@" if parts.username else ""
        return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{self._port}", query=""))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry connections."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._port = listener.getsockname()[1]
        task_status.started()
        accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
        await trio.serve_listeners(self._carry, [accepting])

    # -- what a test does

    def shut(self, *, requests: bool = True, answers: bool = True) -> None:
        """Let nothing through, as if the network were gone; nothing that was sent is lost."""
        if requests:
            self._gates[True].shut()
        if answers:
            self._gates[False].shut()

    def open(self) -> None:
        """Let everything through again."""
        for gate in self._gates.values():
            gate.open()

    async def cut(self) -> None:
        """Cut all connections."""
        for flow in list(self._connections):
            await flow.cut()

    # -- connections

    async def _carry(self, near: trio.SocketStream) -> None:
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            async with near:
                await self._gates[True].passed()
                async with await self._open() as far:
                    split = _Split()
                    async with trio.open_nursery() as nursery:
                        for ends in ((near, far, True), (far, near, False)):
                            nursery.start_soon(self._pump, Flow(*ends), split, nursery)

    async def _open(self) -> trio.SocketStream:
        parts = urlsplit(self.database)
        host = parse_qs(parts.query).get("host", [""])[0]
        if host:
            return await trio.open_unix_socket(f"{host}/.s.PGSQL.5432")
        return await trio.open_tcp_stream(parts.hostname or "127.0.0.1", parts.port or 5432)

    async def _pump(self, flow: Flow, split: _Split, nursery: trio.Nursery) -> None:
        self._connections.add(flow)
        try:
            with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                async for some in flow.source:
                    flow.buffer += some
                    if self.delay:
                        await trio.sleep(self.delay)
                    await self._pass_on(flow, split)
        finally:
            self._connections.discard(flow)
            # Each way that ends takes the other one with it, as a process that is gone does.
            nursery.cancel_scope.cancel()

    async def _pass_on(self, flow: Flow, split: _Split) -> None:
        together = bytearray()
        for message in split.messages(flow):
            trap = self.trap
            if trap is not None and trap.is_at(message):
                await self._send(flow, together)
                together.clear()
                trap.sprung.set()  # what is done may end this task
                await trap.do(flow)
            together += message
        await self._send(flow, together)

    async def _send(self, flow: Flow, some: bytearray) -> None:
        await self._gates[flow.asks].passed()
        if some and not flow.swallows:
            await flow.sink.send_all(some)
