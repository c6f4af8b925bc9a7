"""Serving a runtime: listen, accept, and have each connection received as a task of the runtime."""

from __future__ import annotations

import errno
import logging
import math
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from arcp_trio.addresses import is_loopback
from arcp_trio.front.console import Console
from arcp_trio.front.door import Caller, Door
from arcp_trio.front.foreground import ctrl_c, is_main_task, say
from arcp_trio.front.listening import CannotListen, close, is_unix, listen, url
from arcp_trio.front.origins import Origins
from arcp_trio.front.waiting import WaitingRoom
from arcp_trio.nurseries import tasks_beside
from arcp_trio.runtime.runtime import Runtime
from arcp_trio.runtime.tasks import first_of
from arcp_trio.under_trio import need_trio

log = logging.getLogger(__name__)

ACCEPT_PAUSE_SECONDS: Final = 0.1
"""How long a listener pauses when a connection cannot be accepted for lack of a resource."""
COMPLAINT_SECONDS: Final = 10.0
"""How often the log says so while the lack lasts."""

_LACKS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of accept(2) that pass. Those of a single connection, such as ECONNABORTED and EPROTO,
are retried by Trio; all others mean that the socket will never accept again."""


async def serve(  # noqa: ASYNC128 - passes it on
    runtime: Runtime,
    host: str | Sequence[str] = "127.0.0.1",
    port: int = 7777,
    *,
    ssl_context: ssl.SSLContext | None = None,
    origins: Iterable[str] = (),
    console: bool = True,
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept connections for `runtime` until cancelled, or until the runtime is over.

    `listeners = await nursery.start(serve, runtime, host, port)` returns once clients can connect;
    with port 0, `listeners[0].socket.getsockname()` has the port that was chosen.

    Ctrl-C shuts the runtime down in order. Then, in the main task of a program, `serve` returns, so
    that the program ends quietly; in another task it raises KeyboardInterrupt, which ends the
    others. A second Ctrl-C ends the process at once. The main task also writes the address to
    standard error, unless the log of the program shows it. A program that handles SIGINT itself
    keeps its handler.

    Args:
        runtime: an entered runtime.
        host: an address, a name, `unix:` and the path of a Unix socket, or several of these.
        port: the port of all that are not Unix sockets.
        ssl_context: has the certificate, for TLS on all that are not Unix sockets.
        origins: the web pages that may connect, like `https://app.example`. Their host names
            become names of the runtime, such as that of a proxy before it.
        console: whether the console, a page that shows jobs to those with a token, is at `/`.

    Cancellation: closes the listeners. Connections belong to the runtime and go on.

    Raises:
        OSError: when it is not possible to listen there, or no longer.
        ValueError: when one of the origins is malformed.
        KeyboardInterrupt: Ctrl-C, in another task than the main task.
        RuntimeError: the block `async with runtime` has not begun.
    """
    need_trio("arcp_trio.serve")
    if not runtime.entered:
        raise RuntimeError("the runtime is not running: call serve inside `async with runtime:`")
    checked = Origins(origins)
    listeners = await listen([host] if isinstance(host, str) else host, port)
    current = None if ssl_context is None else lambda: ssl_context
    with ctrl_c() as interrupted:
        if is_main_task():
            say(url(each, encrypted=_is_encrypted(each, current)) for each in listeners)

        async def shut_down() -> None:
            await interrupted.wait()
            # The listeners stay open meanwhile: clients that connect are told of the end.
            await runtime.shutdown()

        await serve_on(
            listeners,
            runtime,
            over=partial(first_of, runtime.over, shut_down),
            ssl_context=current,
            origins=checked,
            console=Console.load() if console else None,
            task_status=task_status,
        )
    if interrupted.is_set() and not is_main_task():
        raise KeyboardInterrupt


async def serve_on(
    listeners: list[trio.SocketListener],
    runtime: Runtime,
    *,
    over: Callable[[], Awaitable[None]],
    ssl_context: Callable[[], ssl.SSLContext] | None = None,
    origins: Origins | None = None,
    console: Console | None = None,
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept connections from the listeners that `listen` returned, and close them at the end.

    The end is when `over` returns. `ssl_context` is called for each connection and returns the
    context to use.
    """
    room = WaitingRoom(runtime.limits.connections_before_handshake)
    try:
        async with tasks_beside() as nursery:
            for listener in listeners:
                door = Door(
                    runtime=runtime,
                    room=room,
                    origins=origins or Origins(),
                    console=console,
                    ssl_context=ssl_context if _is_encrypted(listener, ssl_context) else None,
                )
                where = url(listener, encrypted=door.ssl_context is not None)
                log.info("accepting connections", extra={"address": where})
                nursery.start_soon(_accept_from, listener, where, door, name=f"accept on {where}")
            task_status.started(listeners)
            await over()
            log.info("accepting no more connections")
    finally:
        close(listeners)


def _is_encrypted(
    listener: trio.SocketListener, ssl_context: Callable[[], ssl.SSLContext] | None
) -> bool:
    return ssl_context is not None and not is_unix(listener)


async def _accept_from(listener: trio.SocketListener, where: str, door: Door) -> None:
    # trio.serve_listeners would have the connections in a nursery of its own, and end with the
    # first error of any of them.
    complain_from = -math.inf
    while True:
        try:
            stream = await listener.accept()
        except trio.ClosedResourceError:
            raise _accepts_no_longer(errno.EBADF, where) from None
        except OSError as error:
            if error.errno not in _LACKS:
                raise _accepts_no_longer(error.errno or errno.EINVAL, where) from error
            if trio.current_time() >= complain_from:
                log.warning("cannot accept connections", extra={"error": str(error)})
                complain_from = trio.current_time() + COMPLAINT_SECONDS
            await trio.sleep(ACCEPT_PAUSE_SECONDS)
            continue
        with suppress(OSError):  # the client has closed it again
            # Without heartbeats, only the kernel notices that an idle client has vanished.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        caller = _caller(stream)
        try:
            door.runtime.start_connection(
                partial(door.receive, stream, caller), name=f"connection from {caller.peer}"
            )
        except BaseException:
            stream.socket.close()
            raise


def _accepts_no_longer(number: int, where: str) -> CannotListen:
    return CannotListen(number, f"no longer accepts connections: {os.strerror(number)}", where)


def _caller(stream: trio.SocketStream) -> Caller:
    if stream.socket.family == socket.AF_UNIX:
        return Caller(peer="a Unix socket", private=True)
    try:
        host, port, *_ = stream.socket.getpeername()
    except OSError:  # the client has closed it again
        return Caller(peer="unknown", private=False)
    return Caller(
        peer=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        private=is_loopback(host),
        loopback=is_loopback(stream.socket.getsockname()[0]),
    )


async def serve_stream(
    runtime: Runtime, stream: trio.abc.Stream, peer: str, *, private: bool = False
) -> None:
    """Serve the one connection on `stream` until it ends, and close it.

    `private` says that the stream is encrypted, or stays within the machine.
    """
    caller = Caller(peer=peer, private=private)
    await Door(runtime=runtime, room=WaitingRoom(1)).receive(stream, caller)
