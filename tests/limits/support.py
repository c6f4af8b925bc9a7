"""Clients that connect from an address."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from arcp_trio import Runtime
from arcp_trio.front.serve import serve_stream
from arcp_trio.testing import Peer, WireRecorder
from arcp_trio.transport import connect, memory_streams

MAX_BYTES = 4 * 1024 * 1024


@asynccontextmanager
async def peer_at(runtime: Runtime, name: str) -> AsyncGenerator[Peer]:
    """Connect a client that the runtime knows by this address."""
    ours, theirs = memory_streams()
    runtime.start_connection(partial(serve_stream, runtime, theirs, name), name)
    async with connect(ours, max_bytes=MAX_BYTES) as transport:
        yield Peer(transport, ours, WireRecorder())
