"""Clients that stay connected while their runtime ends, and what each of them saw."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import trio

from arcp_trio import Runtime
from arcp_trio.nurseries import tasks_beside
from arcp_trio.testing import Peer, open_peers
from arcp_trio.transport import TransportClosed
from arcp_trio.wire.json import Json

GOING_AWAY = 1001


@attrs.define(eq=False)
class Listener:
    """A client that reads until its socket is closed."""

    peer: Peer
    frames: list[Json] = attrs.field(factory=list)
    code: int | None = None
    closed: trio.Event = attrs.field(factory=trio.Event)

    async def listen(self) -> None:
        """Read until the socket is closed."""
        try:
            while True:
                self.frames.append(await self.peer.receive())
        except TransportClosed as closed:
            self.code = closed.code
            self.closed.set()

    @property
    def types(self) -> list[str]:
        """The types of the frames that were read."""
        return [frame["type"] for frame in self.frames]


class Clients:
    """Clients of one runtime that connect while it lives and stay until after its end."""

    def __init__(self, runtime: Runtime, nursery: trio.Nursery) -> None:
        self._runtime = runtime
        self._nursery = nursery

    async def connect(self, *, hello: bool = True) -> Peer:
        """Connect a client whose test reads its frames."""
        peers = await self._nursery.start(self._hold)
        peer: Peer = await peers.connect()
        if hello:
            await peer.hello()
        return peer

    async def _hold(self, *, task_status: trio.TaskStatus[object]) -> None:
        async with open_peers(self._runtime) as peers:
            task_status.started(peers)
            await trio.sleep_forever()

    def listen(self, peer: Peer) -> Listener:
        """Start a task that reads this client's frames from now on."""
        listener = Listener(peer)
        self._nursery.start_soon(listener.listen)
        return listener


@asynccontextmanager
async def clients_of(runtime: Runtime) -> AsyncGenerator[Clients, None]:
    """Provide clients that outlive the runtime."""
    async with tasks_beside() as nursery:
        yield Clients(runtime, nursery)
