"""The listening socket: accepts, and hands each connection to the runtime."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol

import trio

from arcp_trio.transport import Transport, TransportClosed, accept

logger = logging.getLogger(__name__)

#: How long to leave a listener alone that cannot accept: for want of file descriptors, mostly.
ACCEPT_PAUSE_SECONDS: Final = 0.1
#: Closing by force does no network I/O, so this only guards against a stream that misbehaves.
CLOSE_SECONDS: Final = 1.0


class Limits(Protocol):
    """The bounds that hold from the first byte."""

    @property
    def handshake_seconds(self) -> float:
        """From TCP accept to welcome."""
        ...

    @property
    def frame_bytes_in(self) -> int:
        """What one message may have."""
        ...


class Runtime(Protocol):
    """What serving needs of a runtime."""

    @property
    def limits(self) -> Limits:
        """Its bounds."""
        ...

    def start_connection(self, serve: Callable[[], Awaitable[None]], name: str) -> None:
        """Start a task that outlives the listener; what it raises is logged and goes no further."""
        ...

    async def attend(self, transport: Transport, *, deadline: float) -> None:
        """Run a connection until it ends; its client has until `deadline` to introduce itself."""
        ...


async def serve(
    runtime: Runtime,
    host: str | None = "127.0.0.1",
    port: int = 7777,
    *,
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept WebSocket connections for `runtime`, until cancelled.

    `listeners = await nursery.start(serve, runtime, host, port)` returns once they can connect;
    with port 0, `listeners[0].socket.getsockname()` says which port it became.

    Cancellation: closes the listeners. Connections belong to the runtime and go on.

    Raises:
        OSError: when the address cannot be listened on.
    """
    listeners = await trio.open_tcp_listeners(port, host=host)
    try:
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                host, port = listener.socket.getsockname()[:2]
                logger.info("accepting connections on %s port %d", host, port)
                name = f"accept on {host} port {port}"
                nursery.start_soon(_accept_from, listener, runtime, name=name)
            task_status.started(listeners)
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            for listener in listeners:
                await listener.aclose()


async def _accept_from(listener: trio.SocketListener, runtime: Runtime) -> None:
    # trio.serve_listeners would have the connections in a nursery of its own, and end with the
    # first error of any of them.
    while True:
        try:
            stream = await listener.accept()
        except OSError as exc:
            logger.warning("cannot accept a connection: %s", exc)
            await trio.sleep(ACCEPT_PAUSE_SECONDS)
            continue
        peer = _peer_name(stream)
        runtime.start_connection(
            partial(serve_stream, runtime, stream, peer), name=f"connection from {peer}"
        )


def _peer_name(stream: trio.SocketStream) -> str:
    try:
        host, port, *_ = stream.socket.getpeername()
    except OSError:  # gone already
        return "unknown"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def serve_stream(runtime: Runtime, stream: trio.abc.Stream, peer: str) -> None:
    """Serve the one connection on `stream`, however it ends, and close it."""
    deadline = trio.current_time() + runtime.limits.handshake_seconds
    try:
        with trio.CancelScope(deadline=deadline) as handshake:
            try:
                async with accept(
                    stream, max_bytes=runtime.limits.frame_bytes_in, peer=peer
                ) as transport:
                    handshake.deadline = math.inf  # from here on, attending minds the deadline
                    await runtime.attend(transport, deadline=deadline)
            except TransportClosed as exc:
                logger.info("connection from %s: %s", peer, exc)
        if handshake.cancelled_caught:
            logger.info("connection from %s: no opening handshake in time", peer)
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await trio.aclose_forcefully(stream)
