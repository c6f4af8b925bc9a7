"""The listening socket: accepts, and hands each connection to the runtime."""

from __future__ import annotations

import errno
import ipaddress
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

import trio

from arcp_trio.transport import Transport, TransportClosed, accept

logger = logging.getLogger(__name__)

#: How long to leave a listener alone that cannot accept: for want of file descriptors, mostly.
ACCEPT_PAUSE_SECONDS: Final = 0.1
#: Closing by force does no network I/O, so this only guards against a stream that misbehaves.
CLOSE_SECONDS: Final = 1.0
#: What is free on one address may be taken on another; not often.
FREE_PORT_TRIES: Final = 10


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

    async def over(self) -> None:
        """Wait until it takes no connections any more."""
        ...


async def serve(  # noqa: ASYNC128 - passes it on
    runtime: Runtime,
    host: str | None = "127.0.0.1",
    port: int = 7777,
    *,
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept WebSocket connections for `runtime`, until cancelled or until the runtime is over.

    `listeners = await nursery.start(serve, runtime, host, port)` returns once they can connect;
    with port 0, `listeners[0].socket.getsockname()` says which port it became.

    Cancellation: closes the listeners. Connections belong to the runtime and go on.

    Raises:
        OSError: when the address cannot be listened on.
    """
    await serve_on(await listen(host, port), runtime, task_status=task_status)


async def listen(host: str | None, port: int) -> list[trio.SocketListener]:
    """Listen on every address of `host`; port 0 becomes the same free port on each.

    Raises:
        OSError: when the address cannot be listened on.
    """
    for _ in range(FREE_PORT_TRIES):
        listeners = await trio.open_tcp_listeners(port, host=host)
        first, *others = [listener.socket.getsockname()[1] for listener in listeners]
        if all(other == first for other in others):
            return listeners
        # Each address has been given a port of its own.
        await _close(listeners)
        with suppress(OSError):
            return await trio.open_tcp_listeners(first, host=host)
    raise OSError(errno.EADDRINUSE, "no port is free on all of its addresses")


async def serve_on(
    listeners: list[trio.SocketListener],
    runtime: Runtime,
    *,
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Do as `serve` does, with what `listen` has opened; it is closed at the end."""
    try:
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                host, port = listener.socket.getsockname()[:2]
                logger.info("accepting connections on %s port %d", host, port)
                name = f"accept on {host} port {port}"
                nursery.start_soon(_accept_from, listener, runtime, name=name)
            task_status.started(listeners)
            await runtime.over()
            logger.info("accepting no more connections: the runtime is over")
            nursery.cancel_scope.cancel(reason="the runtime is over")
    finally:
        await _close(listeners)  # noqa: ASYNC102 - bounds itself


async def _close(listeners: list[trio.SocketListener]) -> None:
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
        peer, private = _peer(stream)
        attend = partial(serve_stream, runtime, stream, peer, private=private)
        try:
            runtime.start_connection(attend, name=f"connection from {peer}")
        except BaseException:
            stream.socket.close()
            raise


def _peer(stream: trio.SocketStream) -> tuple[str, bool]:
    """The peer's name, and whether it is on this machine."""
    try:
        host, port, *_ = stream.socket.getpeername()
    except OSError:  # gone already
        return "unknown", False
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}", is_loopback(host)


def is_loopback(host: str) -> bool:
    """Whether a peer at this address is on this machine, so that nothing leaves it."""
    address = ipaddress.ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


async def serve_stream(
    runtime: Runtime, stream: trio.abc.Stream, peer: str, *, private: bool = False
) -> None:
    """Serve the one connection on `stream`, however it ends, and close it.

    `private` says that nobody can read along on it.
    """
    deadline = trio.current_time() + runtime.limits.handshake_seconds
    try:
        with trio.CancelScope(deadline=deadline) as handshake:
            try:
                async with accept(
                    stream,
                    max_bytes=runtime.limits.frame_bytes_in,
                    peer=peer,
                    private=private,
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
