"""Clients and a runtime in one process, over memory streams and the real WebSocket code."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from arcp_trio.client.client import Client
from arcp_trio.client.connect import connect
from arcp_trio.client.dialing import Dialer, dialer
from arcp_trio.client.events import EventHandler
from arcp_trio.front.serve import serve_stream
from arcp_trio.nurseries import tasks_beside
from arcp_trio.runtime.runtime import Runtime
from arcp_trio.testing.peer import TEST_TOKEN, Peer
from arcp_trio.testing.recorder import WireRecorder
from arcp_trio.testing.recording import RecordedTransport
from arcp_trio.transport import Transport, memory_streams
from arcp_trio.transport import connect as open_websocket

_MAX_BYTES: Final = 4 * 1024 * 1024
"""The largest frame that a peer receives; a runtime never sends such a large one."""


async def open_stream(runtime: Runtime) -> trio.abc.Stream:
    """Connect to an entered runtime, and return the client's end of the stream."""
    ours, theirs = memory_streams()
    serve = partial(serve_stream, runtime, theirs, "memory", private=True)
    runtime.start_connection(serve, "memory")
    return ours


@asynccontextmanager
async def open_transport(
    runtime: Runtime,
) -> AsyncGenerator[tuple[Transport, trio.abc.Stream], None]:
    """Connect to an entered runtime; the block gets the transport and the stream under it."""
    stream = await open_stream(runtime)
    async with open_websocket(stream, max_bytes=_MAX_BYTES) as transport:
        yield transport, stream


@asynccontextmanager
async def open_pair(
    runtime: Runtime,
    *,
    token: str = TEST_TOKEN,
    on_event: EventHandler | None = None,
    recorder: WireRecorder | None = None,
) -> AsyncGenerator[Client, None]:
    """Connect a client to an entered runtime; leaving the block closes the session.

    The client is the one that `arcp_trio.connect` makes, on the runtime's clock. Each frame that
    it receives is checked; a runtime that breaks a promise of the protocol ends the block.

    Args:
        runtime: an entered runtime.
        token: a bearer token that the runtime's `auth` knows.
        on_event: called with each event of each job, one at a time and in order.
        recorder: keeps what the client sees on the wire.

    Raises:
        ArcpError: the runtime refused the session with the code of this class.
        AssertionError: the runtime sent a frame that it must not send.
    """
    seen = recorder or WireRecorder()
    plain = dialer(partial(open_stream, runtime), ssl_context=None)

    @asynccontextmanager
    async def recorded() -> AsyncGenerator[Transport, None]:
        async with plain.open() as transport:
            yield RecordedTransport(transport, seen.connection())

    target = Dialer(recorded, again=True)
    async with connect(target, token=token, on_event=on_event, now=runtime.clock.now) as client:
        yield client


@asynccontextmanager
async def open_peer(runtime: Runtime, *, answer_pings: bool = True) -> AsyncGenerator[Peer, None]:
    """Connect one raw peer to an entered runtime, without saying `hello`."""
    async with open_peers(runtime) as peers:
        yield await peers.connect(answer_pings=answer_pings)


@asynccontextmanager
async def open_peers(runtime: Runtime) -> AsyncGenerator[PeerFactory, None]:
    """Connect any number of raw peers, one after another or at the same time.

    The peers share a recorder, so a session that one peer leaves and another resumes is checked as
    one. Peers that are connected at the end of the block are dropped.
    """
    async with tasks_beside() as nursery:
        yield PeerFactory(runtime, nursery)


class PeerFactory:
    """Connects raw peers to one runtime; made by `open_peers`."""

    def __init__(self, runtime: Runtime, nursery: trio.Nursery) -> None:
        self.recorder = WireRecorder()
        self._runtime = runtime
        self._nursery = nursery

    async def connect(self, *, answer_pings: bool = True) -> Peer:
        """Connect another peer."""
        peer: Peer = await self._nursery.start(
            partial(self._hold, answer_pings=answer_pings), name="peer"
        )
        return peer

    async def _hold(self, *, answer_pings: bool, task_status: trio.TaskStatus[Peer]) -> None:
        async with open_transport(self._runtime) as (transport, stream):
            peer = Peer(transport, stream, self.recorder, answer_pings=answer_pings)
            task_status.started(peer)
            await peer.over.wait()
