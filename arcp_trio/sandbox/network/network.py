"""The network of one job's sandboxes: where they listen, and who serves what connects."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import trio

from arcp_trio.nurseries import tasks_beside
from arcp_trio.sandbox.network.entering import MOST_PORTS, listeners_inside
from arcp_trio.sandbox.network.proxy import Proxy
from arcp_trio.sandbox.network.reach import Reach
from arcp_trio.transport.starting import StartedProcess

PROXY_PORT: Final = 3128
MOST_CONNECTIONS: Final = 128
"""Connections that one sandbox has open at the same time; further ones wait."""
_BUSY_SECONDS: Final = 0.1
"""How long to wait when this process has too many files open."""


class Network:
    """What the sandboxes of one job can reach."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None, None]:
        """Serve what connects, for the length of the block."""
        async with tasks_beside() as self._nursery:
            yield

    def variables(self) -> dict[str, str]:
        """Return what tells programs where the proxy is."""
        if not self._reach.anything:
            return {}
        proxy, direct = f"http://127.0.0.1:{self._proxy_port()}", "127.0.0.1,localhost"
        names = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": direct}
        lower = {name.lower(): value for name, value in names.items()}
        return {**names, **lower, "NODE_USE_ENV_PROXY": "1"}

    async def open(self, pid: int, process: StartedProcess) -> None:
        """Let the sandbox that begins with a process reach what it may, for as long as it lives.

        Raises:
            OSError: that is not possible.
        """
        if not self._reach.anything:
            return
        assert self._nursery is not None
        proxy = self._proxy_port()
        ports = [proxy, *self._ports()]
        listeners = await listeners_inside(pid, ports)
        served = list(zip(listeners, [None, *ports[1:]], strict=True))
        self._nursery.start_soon(self._serve, served, process, name="network of a sandbox")

    def _ports(self) -> list[int]:
        return self._reach.ports()[: MOST_PORTS - 1]

    def _proxy_port(self) -> int:
        taken = self._ports()
        return next(port for port in range(PROXY_PORT, 2**16) if port not in taken)

    async def _serve(
        self, served: list[tuple[trio.SocketListener, int | None]], process: StartedProcess
    ) -> None:
        room = trio.Semaphore(MOST_CONNECTIONS)
        async with trio.open_nursery() as nursery:
            for listener, port in served:
                nursery.start_soon(self._accept, listener, port, room, nursery)
            await process.wait()
            nursery.cancel_scope.cancel(reason="the program has ended")

    async def _accept(
        self,
        listener: trio.SocketListener,
        port: int | None,
        room: trio.Semaphore,
        nursery: trio.Nursery,
    ) -> None:
        async with listener:
            while True:
                await room.acquire()
                try:
                    stream = await listener.accept()
                except OSError:
                    room.release()
                    await trio.sleep(_BUSY_SECONDS)
                else:
                    proxy = Proxy(stream, self._reach, port)
                    nursery.start_soon(self._serve_one, proxy, room)

    async def _serve_one(self, proxy: Proxy, room: trio.Semaphore) -> None:
        try:
            await proxy.serve()
        finally:
            room.release()
