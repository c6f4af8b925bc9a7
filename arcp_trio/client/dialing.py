"""Opens a transport to a runtime: by URL, or one of several, by starting it, or over a stream."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias, cast
from urllib.parse import SplitResult, quote, urlsplit

import attrs
import trio

from arcp_trio.addresses import HIGHEST_PORT, UNIX_PREFIX, WEBSOCKET_PATH, addresses_in
from arcp_trio.client.errors import (
    CommandFailed,
    ConnectionLost,
    ConnectionRefused,
    NotWebSocket,
    TlsFailed,
    WrongPath,
)
from arcp_trio.groups import leaves
from arcp_trio.transport import HandshakeFailed, Transport, TransportClosed
from arcp_trio.transport import connect as open_websocket
from arcp_trio.transport.stdio import spawn

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The largest frame that a client takes. Other vendors' runtimes send larger ones than ours."""

FIRST_FRAME_BYTES: Final = 1024 * 1024
"""The largest welcome: nothing is known yet of the runtime that sends it."""

CONNECT_SECONDS: Final = 10.0
"""How long it may take to open a connection and a session on it."""

_PORTS: Final = {"ws": 80, "wss": 443}
_SCHEMES_FOR_PAGES: Final = {"http": "ws", "https": "wss"}
_IS_ADDRESS: Final = re.compile(r"[A-Za-z]+://|unix:")
"""What an address begins with, and a command does not."""
_NOT_IN_PATHS: Final = re.compile(r"[^!-~]")
"""Everything but the printable characters of ASCII without the space."""

StreamOpener: TypeAlias = Callable[[], Awaitable[trio.abc.Stream]]
_TransportOpener: TypeAlias = Callable[[], AbstractAsyncContextManager[Transport]]


@attrs.frozen
class Dialer:
    """Opens connections to one runtime, or to the nodes of a cluster."""

    open: _TransportOpener
    again: bool
    """Whether a second connection could lead to the same runtime."""
    seconds: float = CONNECT_SECONDS
    """How long it may take to open a connection and a session on it."""
    others: tuple[_TransportOpener, ...] = ()
    """What else leads to the runtime, or to other nodes: they are tried in turn."""


Target: TypeAlias = str | Sequence[str] | trio.abc.Stream | StreamOpener | Dialer
"""A runtime, or the nodes of a cluster. A `Dialer` is for callers that wrap the transport."""


def dialer(target: Target, ssl_context: ssl.SSLContext | None) -> Dialer:
    """Return how to reach `target`; `ValueError` or `TypeError` if it is not a target."""
    if isinstance(target, Dialer):
        return target
    if isinstance(target, str):
        addresses = addresses_in(target)
        if len(addresses) > 1 and "" in addresses:
            raise _no_address(target, "a comma has no address before or after it")
        first, *others = [_by_address(each, ssl_context) for each in addresses]
        return Dialer(first, again=True, others=tuple(others))
    if isinstance(target, trio.abc.Stream):
        return Dialer(partial(_over, target), again=False)
    if callable(target):
        return Dialer(partial(_over_opened, target), again=True)
    command = _command(target)
    if not command[0] or _IS_ADDRESS.match(command[0]):
        first, *others = [_by_address(each, ssl_context) for each in command]
        return Dialer(first, again=True, others=tuple(others))
    return Dialer(partial(_by_command, command), again=False)


# -- reading the target


def _by_address(address: str, ssl_context: ssl.SSLContext | None) -> _TransportOpener:
    if address.startswith(UNIX_PREFIX):
        return partial(_over_opened, partial(trio.open_unix_socket, _socket_path(address)))
    return partial(_by_url, _parse(address), ssl_context)


def _command(target: object) -> list[str]:
    if not isinstance(target, Sequence) or isinstance(target, bytes | bytearray):
        raise TypeError(
            "expected a ws:// or wss:// URL, unix: and a path, several of these, a command as a "
            f"list, an open stream or an async function that opens one, not {target!r}"
        )
    command = list(cast("Sequence[str]", target))
    if not command:
        raise ValueError("the list is empty: expected addresses, or a command with its arguments")
    return command


def _socket_path(url: str) -> str:
    path = url.removeprefix(UNIX_PREFIX)
    if not path or "\0" in path:
        raise _no_address(url, "expected unix: and a path")
    return path


def _parse(url: str) -> SplitResult:
    parts = urlsplit(url)
    if fault := _fault(parts):
        raise _no_address(url, fault)
    return parts


def _no_address(given: str, fault: str) -> ValueError:
    return ValueError(f"not the address of a runtime: {given!r}: {fault}")


def _fault(parts: SplitResult) -> str | None:
    """Return why the parts of a URL name no WebSocket, or None if they name one."""
    if not any(parts):
        return "it is empty: expected ws:// or wss:// and a host, or unix: and a path"
    if parts.scheme in _SCHEMES_FOR_PAGES:
        return f"for {parts.scheme}:// write {_SCHEMES_FOR_PAGES[parts.scheme]}://"
    if parts.scheme not in _PORTS:
        return "it begins with neither ws:// nor wss://"
    if not parts.hostname:
        return "it names no host"
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        return f"a port is a number from 1 to {HIGHEST_PORT}"
    wrong = _NOT_IN_PATHS.search(f"{parts.path}?{parts.query}")
    return wrong and f"for {wrong[0]!r} in its path write {quote(wrong[0])}"


# -- opening the transport


@asynccontextmanager
async def _by_url(
    url: SplitResult, ssl_context: ssl.SSLContext | None
) -> AsyncGenerator[Transport, None]:
    host, port = url.hostname or "", url.port or _PORTS[url.scheme]
    try:
        stream: trio.abc.Stream = await trio.open_tcp_stream(host, port)
    except OSError as error:
        cause = _first_attempt(error)
        why = os.strerror(cause.errno).lower() if cause.errno else str(cause)
        raise ConnectionRefused(f"no connection to {host} port {port}: {why}") from cause
    except UnicodeError as error:  # the host is not a valid name
        raise ConnectionRefused(f"no connection to {host} port {port}: {error}") from error
    if url.scheme == "wss":
        context = ssl_context or ssl.create_default_context()
        stream = await _secure(stream, context, host, port)
    path = (url.path or WEBSOCKET_PATH) + (f"?{url.query}" if url.query else "")
    host_and_port = url.netloc.rpartition("@")[2]
    hint = "; perhaps by wss://" if url.scheme == "ws" else ""
    async with _websocket(stream, host=host_and_port, path=path, hint=hint) as transport:
        yield transport


def _first_attempt(error: OSError) -> OSError:
    """Return why the first of a host's addresses could not be reached."""
    attempts = error.__cause__
    if not isinstance(attempts, Exception):
        return error
    return next((each for each in leaves(attempts) if isinstance(each, OSError)), error)


async def _secure(
    stream: trio.abc.Stream, context: ssl.SSLContext, host: str, port: int
) -> trio.abc.Stream:
    secure = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    try:
        await secure.do_handshake()
    except (trio.BrokenResourceError, ssl.SSLError) as error:
        await trio.aclose_forcefully(stream)
        why = error.__cause__ or error
        hint = "" if isinstance(why, ssl.SSLCertVerificationError) else "; perhaps by ws://"
        raise TlsFailed(f"no TLS with {host} port {port}: {why}{hint}") from error
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return secure


@asynccontextmanager
async def _over(stream: trio.abc.Stream) -> AsyncGenerator[Transport, None]:
    async with _websocket(stream, host="localhost", path=WEBSOCKET_PATH) as transport:
        yield transport


@asynccontextmanager
async def _over_opened(open_stream: StreamOpener) -> AsyncGenerator[Transport, None]:
    try:
        stream = await open_stream()
    except (OSError, trio.BrokenResourceError) as error:
        raise ConnectionRefused(f"the connection cannot be opened: {error}") from error
    async with _over(stream) as transport:
        yield transport


@asynccontextmanager
async def _websocket(
    stream: trio.abc.Stream, *, host: str, path: str, hint: str = ""
) -> AsyncGenerator[Transport, None]:
    async with AsyncExitStack() as stack:
        opening = open_websocket(
            stream, host=host, path=path, max_bytes=MAX_FRAME_BYTES, first_bytes=FIRST_FRAME_BYTES
        )
        try:
            transport = await stack.enter_async_context(opening)
        except HandshakeFailed as error:
            page = error.status == HTTPStatus.OK and path != WEBSOCKET_PATH
            if page or error.status == HTTPStatus.NOT_FOUND:
                raise WrongPath(f"{host} has no WebSocket at {path} ({error.status})") from error
            if error.status is not None:
                raise NotWebSocket(
                    f"{host} answers {path} with HTTP status {error.status}, not with a WebSocket"
                ) from error
            raise NotWebSocket(f"{host} does not speak WebSocket{hint}") from error
        except TransportClosed as error:
            raise ConnectionLost(
                f"{host} closed the connection before it answered{hint}"
            ) from error
        yield transport


@asynccontextmanager
async def _by_command(command: list[str]) -> AsyncGenerator[Transport, None]:
    async with AsyncExitStack() as stack:
        try:
            child = await stack.enter_async_context(
                spawn(command, max_bytes=MAX_FRAME_BYTES, first_bytes=FIRST_FRAME_BYTES)
            )
        except OSError as error:
            raise CommandFailed(f"{command[0]} cannot be started: {error}") from error
        yield child.transport
