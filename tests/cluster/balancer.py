"""What stands before the nodes: takes each connection of a client to the next node."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

import trio


class Entrance(Protocol):
    """What clients connect to."""

    @property
    def port(self) -> int:
        """Where it listens, on this machine."""


class Balancer:
    """One address for all nodes. It knows nothing of them but their ports."""

    def __init__(self, ports: Callable[[], Sequence[int]]) -> None:
        self.port = 0
        self._ports = ports
        self._turn = 0
        self._carried: dict[trio.SocketStream, tuple[trio.SocketStream, int]] = {}
        """The streams to the nodes, each with that from the client and the node's port."""
        self._left: set[trio.SocketStream] = set()
        """Streams to nodes that have not noticed that the client is gone."""

    @contextmanager
    def only(self, ports: Sequence[int] | None) -> Generator[None]:
        """Take new connections to these nodes only, for the block; None does not restrict them."""
        before = self._ports
        if ports is not None:
            self._ports = lambda: ports
        try:
            yield
        finally:
            self._ports = before

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry connections."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = listener.getsockname()[1]
        task_status.started()
        accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
        await trio.serve_listeners(self._carry, [accepting])

    async def cut(self, port: int) -> None:
        """Cut all clients' connections to a node."""
        for far, _ in self._to(port):
            await trio.aclose_forcefully(far)

    async def leave(self, port: int) -> None:
        """Cut all connections to a node on the clients' side; the node does not notice."""
        for far, near in self._to(port):
            self._left.add(far)
            await trio.aclose_forcefully(near)

    def _to(self, port: int) -> list[tuple[trio.SocketStream, trio.SocketStream]]:
        return [(far, near) for far, (near, to) in self._carried.items() if to == port]

    async def _carry(self, near: trio.SocketStream) -> None:
        async with near:
            for _ in self._ports():
                self._turn += 1
                ports = self._ports()
                if not ports:
                    return
                port = ports[self._turn % len(ports)]
                with suppress(OSError):
                    await self._join(near, await trio.open_tcp_stream("127.0.0.1", port), port)
                    return

    async def _join(self, near: trio.SocketStream, far: trio.SocketStream, port: int) -> None:
        self._carried[far] = near, port
        try:
            async with far, trio.open_nursery() as nursery:
                for source, sink in ((near, far), (far, near)):
                    nursery.start_soon(self._pump, source, sink, nursery)
        finally:
            del self._carried[far]
            self._left.discard(far)

    async def _pump(
        self, source: trio.SocketStream, sink: trio.SocketStream, nursery: trio.Nursery
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for some in source:
                await sink.send_all(some)
        if sink in self._left:
            return
        if source in self._left:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async for _ in source:
                    pass
        nursery.cancel_scope.cancel()
