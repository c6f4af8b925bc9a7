"""How to reach a runtime: by URL, by starting it, or over a stream that is there already."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, TypeAlias, cast
from urllib.parse import SplitResult, quote, urlsplit

import attrs
import trio

from arcp_trio.client.errors import (
    CommandFailed,
    ConnectionLost,
    ConnectionRefused,
    NotWebSocket,
    TlsFailed,
    WrongPath,
)
from arcp_trio.transport import HandshakeFailed, Transport, TransportClosed
from arcp_trio.transport import connect as open_websocket
from arcp_trio.transport.stdio import spawn

MOST_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The largest frame that is taken; other vendors' runtimes send larger ones than ours."""

CONNECT_SECONDS: Final = 10.0
"""From the first packet to the welcome."""

DEFAULT_PATH: Final = "/arcp"
UNIX: Final = "unix:"
_PORTS: Final = {"ws": 80, "wss": 443}
_LAST_PORT: Final = 65_535
_FOR_PAGES: Final = {"http": "ws", "https": "wss"}
_NOT_IN_PATHS: Final = re.compile(r"[^!-~]")
"""What is left are the printable characters of ASCII, without the space."""
_NOT_FOUND: Final = 404

StreamOpener: TypeAlias = Callable[[], Awaitable[trio.abc.Stream]]
_Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[Transport]]


@attrs.frozen
class Dialer:
    """Opens connections to one runtime."""

    open: _Opener
    again: bool
    """Whether a second connection could lead to the same runtime."""
    seconds: float = CONNECT_SECONDS
    """What opening one and the session on it may take."""


Target: TypeAlias = "str | Sequence[str] | trio.abc.Stream | StreamOpener | Dialer"
"""What `connect` takes; a `Dialer` of their own is for those who look at the frames."""


def dialer(target: Target, ssl_context: ssl.SSLContext | None) -> Dialer:
    """Find out how to reach `target`; `ValueError` or `TypeError` if it is nothing of the kind."""
    if isinstance(target, Dialer):
        return target
    if isinstance(target, str) and target.startswith(UNIX):
        opener = partial(trio.open_unix_socket, _path(target))
        return Dialer(partial(_over_opened, opener), again=True)
    if isinstance(target, str):
        return Dialer(partial(_by_url, _parse(target), ssl_context), again=True)
    if isinstance(target, trio.abc.Stream):
        return Dialer(partial(_over, target), again=False)
    if callable(target):
        return Dialer(partial(_over_opened, target), again=True)
    return Dialer(partial(_by_command, _command(target)), again=False)


def _command(target: object) -> list[str]:
    if not isinstance(target, Sequence) or isinstance(target, bytes | bytearray):
        raise TypeError(
            "expected a ws:// or wss:// URL, unix: and a path, a command as a list, an open stream "
            f"or an async function that opens one, not {target!r}"
        )
    command = list(cast("Sequence[str]", target))
    if not command:
        raise ValueError("the command is empty")
    return command


def _path(url: str) -> str:
    path = url.removeprefix(UNIX)
    if not path or "\0" in path:
        raise ValueError(f"not the address of a runtime: {url!r}: expected unix: and a path")
    return path


def _parse(url: str) -> SplitResult:
    parts = urlsplit(url)
    if wrong := _fault(parts):
        raise ValueError(f"not the address of a runtime: {url!r}: {wrong}")
    return parts


def _fault(parts: SplitResult) -> str | None:
    """What keeps anything from being connected to there."""
    if parts.scheme in _FOR_PAGES:
        return f"for {parts.scheme}:// write {_FOR_PAGES[parts.scheme]}://"
    if parts.scheme not in _PORTS:
        return "it begins with neither ws:// nor wss://"
    if not parts.hostname:
        return "it names no host"
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        return f"a port is a number from 1 to {_LAST_PORT}"
    wrong = _NOT_IN_PATHS.search(f"{parts.path}?{parts.query}")
    return wrong and f"for {wrong[0]!r} in its path write {quote(wrong[0])}"


@asynccontextmanager
async def _by_url(
    url: SplitResult, ssl_context: ssl.SSLContext | None
) -> AsyncGenerator[Transport, None]:
    host, port = url.hostname or "", url.port or _PORTS[url.scheme]
    try:
        stream: trio.abc.Stream = await trio.open_tcp_stream(host, port)
    except (OSError, UnicodeError) as exc:  # the latter of what can be no host's name
        raise ConnectionRefused(f"nobody answers at {host} port {port}: {exc}") from exc
    if url.scheme == "wss":
        context = ssl_context or ssl.create_default_context()
        stream = await _secure(stream, context, host, port)
    path = (url.path or DEFAULT_PATH) + (f"?{url.query}" if url.query else "")
    host_and_port = url.netloc.rpartition("@")[2]
    perhaps = ", or only by wss://" if url.scheme == "ws" else ""
    async with _websocket(stream, host=host_and_port, path=path, perhaps=perhaps) as transport:
        yield transport


async def _secure(
    stream: trio.abc.Stream, context: ssl.SSLContext, host: str, port: int
) -> trio.abc.Stream:
    secure = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    try:
        await secure.do_handshake()
    except (trio.BrokenResourceError, ssl.SSLError) as exc:
        await trio.aclose_forcefully(stream)
        why = exc.__cause__ or exc
        perhaps = "" if isinstance(why, ssl.SSLCertVerificationError) else "; perhaps by ws://"
        raise TlsFailed(f"no TLS with {host} port {port}: {why}{perhaps}") from exc
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return secure


@asynccontextmanager
async def _over(stream: trio.abc.Stream) -> AsyncGenerator[Transport, None]:
    async with _websocket(stream, host="localhost", path=DEFAULT_PATH) as transport:
        yield transport


@asynccontextmanager
async def _over_opened(open_stream: StreamOpener) -> AsyncGenerator[Transport, None]:
    try:
        stream = await open_stream()
    except (OSError, trio.BrokenResourceError) as exc:
        raise ConnectionRefused(f"the connection cannot be opened: {exc}") from exc
    async with _over(stream) as transport:
        yield transport


@asynccontextmanager
async def _websocket(
    stream: trio.abc.Stream, *, host: str, path: str, perhaps: str = ""
) -> AsyncGenerator[Transport, None]:
    async with AsyncExitStack() as stack:
        opening = open_websocket(stream, host=host, path=path, max_bytes=MOST_FRAME_BYTES)
        try:
            transport = await stack.enter_async_context(opening)
        except HandshakeFailed as exc:
            if exc.status == _NOT_FOUND:
                raise WrongPath(f"{host} has no WebSocket at {path} (404)") from exc
            if exc.status is not None:
                raise NotWebSocket(
                    f"{host} answers {path} with HTTP status {exc.status}, not with a WebSocket"
                ) from exc
            raise NotWebSocket(f"{host} does not speak WebSocket{perhaps}") from exc
        except TransportClosed as exc:
            raise ConnectionLost(f"{host} closed the connection: {exc}") from exc
        yield transport


@asynccontextmanager
async def _by_command(command: list[str]) -> AsyncGenerator[Transport, None]:
    async with AsyncExitStack() as stack:
        try:
            child = await stack.enter_async_context(spawn(command, max_bytes=MOST_FRAME_BYTES))
        except OSError as exc:
            raise CommandFailed(f"{command[0]} cannot be started: {exc}") from exc
        yield child.transport
