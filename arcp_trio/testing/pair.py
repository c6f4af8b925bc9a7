"""Clients and runtimes in one process: over memory, but through the real WebSocket stack."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import trio

from arcp_trio.front.serve import serve_stream
from arcp_trio.runtime.runtime import Runtime
from arcp_trio.testing.background import background_tasks
from arcp_trio.testing.client import EventHandler, PairClient
from arcp_trio.testing.peer import TEST_TOKEN, Peer
from arcp_trio.testing.recorder import WireRecorder
from arcp_trio.transport import Transport, memory_streams
from arcp_trio.transport.websocket import connect

_MAX_BYTES = 4 * 1024 * 1024
"""The largest frame a client takes: more than a runtime may send."""


@asynccontextmanager
async def open_transport(
    runtime: Runtime,
) -> AsyncGenerator[tuple[Transport, trio.abc.Stream], None]:
    """Connect to an entered runtime; the block has the transport and the stream under it."""
    ours, theirs = memory_streams()
    serve = partial(serve_stream, runtime, theirs, "memory", private=True)
    runtime.start_connection(serve, "memory")
    async with connect(ours, max_bytes=_MAX_BYTES) as transport:
        yield transport, ours


@asynccontextmanager
async def open_pair(
    runtime: Runtime, *, token: str = TEST_TOKEN, on_event: EventHandler | None = None
) -> AsyncGenerator[PairClient, None]:
    """Connect a client to an entered runtime; leaving the block closes its session.

    Args:
        token: who connects, as the runtime's `auth` knows it.
        on_event: called with each event, one at a time and in order, instead of `job.events()`.

    Raises:
        ArcpError: the class of the code with which the runtime refused the session.
    """
    async with open_transport(runtime) as (transport, _):
        client = PairClient(transport, on_event=on_event)
        async with client.session(token=token):
            yield client


@asynccontextmanager
async def open_peer(runtime: Runtime, *, answer_pings: bool = True) -> AsyncGenerator[Peer, None]:
    """Connect one raw peer to an entered runtime; it has still to say `hello`."""
    async with open_peers(runtime) as peers:
        yield await peers.connect(answer_pings=answer_pings)


@asynccontextmanager
async def open_peers(runtime: Runtime) -> AsyncGenerator[PeerFactory, None]:
    """Connect any number of raw peers, one after the other or beside each other.

    They share a recorder, so a session that one peer leaves and another resumes is checked as one.
    Those still connected at the end of the block are dropped.
    """
    async with background_tasks() as nursery:
        yield PeerFactory(runtime, nursery)


class PeerFactory:
    """Connects raw peers to one runtime. `open_peers` makes one."""

    def __init__(self, runtime: Runtime, nursery: trio.Nursery) -> None:
        self.recorder = WireRecorder()
        self._runtime = runtime
        self._nursery = nursery

    async def connect(self, *, answer_pings: bool = True) -> Peer:
        """Open another connection."""
        peer: Peer = await self._nursery.start(
            partial(self._hold, answer_pings=answer_pings), name="peer"
        )
        return peer

    async def _hold(self, *, answer_pings: bool, task_status: trio.TaskStatus[Peer]) -> None:
        async with open_transport(self._runtime) as (transport, stream):
            peer = Peer(transport, stream, self.recorder, answer_pings=answer_pings)
            task_status.started(peer)
            await peer.over.wait()
