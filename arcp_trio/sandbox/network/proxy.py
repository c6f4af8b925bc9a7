"""The proxy of contained programs: CONNECT, absolute URLs, and plain requests to this machine."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import h11
import trio

from arcp_trio.authority import urls
from arcp_trio.nurseries import tasks_beside
from arcp_trio.sandbox.network.reach import Reach, Refused, connect, host_and_port
from arcp_trio.transport.base import GONE
from arcp_trio.wire.errors import clip

HEAD_BYTES: Final = 64 * 1024
IDLE_SECONDS: Final = 600.0
"""How long nothing may be sent on a connection in either direction."""
_READ_BYTES: Final = 64 * 1024
_MOST_WORDS: Final = 500

_OF_ONE_CONNECTION: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authorization",
        b"proxy-authenticate",
    }
    | {b"te", b"trailer", b"transfer-encoding", b"upgrade", b"host"}
)
"""Headers that are not passed on; the host is that of the URL."""

Headers = list[tuple[bytes, bytes]]


class Failed(Exception):  # noqa: N818 - says what has happened
    """A request is not carried out: the answer's status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Proxy:
    """Serves one connection that a contained program has made."""

    def __init__(self, stream: trio.SocketStream, reach: Reach, port: int | None) -> None:
        """Serve a connection.

        Args:
            stream: the connection.
            reach: says what may be reached.
            port: the port of this machine that the program believes to speak with; None if it
                knows that this is a proxy.
        """
        self._stream = stream
        self._reach = reach
        self._port = port
        self._client = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)

    async def serve(self) -> None:
        """Answer one request after the other, until either side has had enough."""
        try:
            while await self._answer_one():
                self._client.start_next_cycle()
        except (*GONE, h11.ProtocolError, trio.TooSlowError):
            return
        finally:
            with trio.CancelScope(shield=True):  # closing by force does not wait
                await trio.aclose_forcefully(self._stream)

    async def _answer_one(self) -> bool:
        """Answer a request; return whether another one may follow."""
        request = await _next_event(self._client, self._stream)
        if not isinstance(request, h11.Request):
            return False
        try:
            if request.method == b"CONNECT":
                await self._tunnel(request.target.decode())
                return False
            await self._forward(request)
        except Failed as failure:
            await self._refuse(failure)
        return self._client.our_state is self._client.their_state is h11.DONE

    async def _refuse(self, failure: Failed) -> None:
        if self._client.our_state not in {h11.SEND_RESPONSE, h11.IDLE}:
            raise trio.BrokenResourceError from failure  # in the midst of an answer
        words = f"{clip(str(failure), _MOST_WORDS)}\n".encode()
        headers: Headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(words)).encode()),
            (b"connection", b"close"),
        ]
        answer = h11.Response(status_code=failure.status, headers=headers)
        await self._send(answer, h11.Data(data=words), h11.EndOfMessage())

    async def _send(self, *events: h11.Event) -> None:
        await _send(self._client, self._stream, *events)

    # -- CONNECT

    async def _tunnel(self, target: str) -> None:
        if ":" not in target:
            raise Failed(400, "CONNECT wants HOST:PORT")
        url = f"https://{target}"
        async with self._connected(url, self._reach.check_site) as server:
            await self._send(h11.Response(status_code=200, headers=[]))
            rest, _ = self._client.trailing_data
            await server.send_all(rest)
            async with trio.open_nursery() as nursery:
                nursery.cancel_scope.deadline = trio.current_time() + IDLE_SECONDS
                nursery.start_soon(_pass_on, self._stream, server, nursery.cancel_scope)
                nursery.start_soon(_pass_on, server, self._stream, nursery.cancel_scope)

    # -- requests

    async def _forward(self, request: h11.Request) -> None:
        url = self._url(request)
        scheme, _, rest = url.partition("://")
        if scheme.lower() != "http":
            raise Failed(400, "this proxy wants http://HOST/PATH, or CONNECT")
        if "#" in url:
            raise Failed(400, "a fragment, from # on, is not sent to a server")
        names = {name for name, _ in request.headers}
        is_chunked = b"transfer-encoding" in names
        if is_chunked and b"content-length" in names:
            raise Failed(400, "a request has content-length or transfer-encoding, not both")
        end = re.search(r"[/?]", rest)
        path = "/" if end is None else rest[end.start() :]
        async with self._connected(url, self._reach.check) as server:
            # As it was checked, which is not always how the program has written it.
            authority = urls.parse(url).site.partition("://")[2]
            headers = [(b"host", authority.encode()), (b"connection", b"close")]
            headers += _passed_on(request.headers)
            if is_chunked:
                headers.append((b"transfer-encoding", b"chunked"))
            target = path if path.startswith("/") else f"/{path}"
            sent = h11.Request(method=request.method, target=target, headers=headers)
            try:
                await self._exchange(sent, server)
            except (*GONE, h11.RemoteProtocolError) as error:
                raise Failed(502, f"{authority} does not answer: {error}") from error

    def _url(self, request: h11.Request) -> str:
        target = request.target.decode("latin-1")
        if self._port is None or not target.startswith("/"):
            return target
        named = dict(request.headers).get(b"host", b"").partition(b":")[0]
        host = "localhost" if named == b"localhost" else "127.0.0.1"
        return f"http://{host}:{self._port}{target}"

    async def _exchange(self, request: h11.Request, server: trio.SocketStream) -> None:
        upstream = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        async with tasks_beside() as nursery:
            nursery.start_soon(self._pass_body, request, upstream, server)
            while True:
                event = await _next_event(upstream, server)
                if isinstance(event, h11.Response):
                    headers = _passed_on(event.headers)
                    await self._send(h11.Response(status_code=event.status_code, headers=headers))
                elif isinstance(event, h11.Data):
                    await self._send(h11.Data(data=event.data))
                elif isinstance(event, h11.EndOfMessage):
                    await self._send(h11.EndOfMessage())
                    return
                elif isinstance(event, h11.ConnectionClosed):
                    raise h11.RemoteProtocolError("the connection has ended")

    async def _pass_body(
        self, request: h11.Request, upstream: h11.Connection, server: trio.SocketStream
    ) -> None:
        try:
            await _send(upstream, server, request)
            if self._client.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            while True:
                event = await _next_event(self._client, self._stream)
                if isinstance(event, h11.EndOfMessage):
                    await _send(upstream, server, h11.EndOfMessage())
                    return
                assert isinstance(event, h11.Data), "an event in the midst of a message"
                await _send(upstream, server, h11.Data(data=event.data))
        except (*GONE, h11.ProtocolError, trio.TooSlowError):
            await trio.aclose_forcefully(server)  # noqa: ASYNC120 - its reader ends, too

    # -- both

    @asynccontextmanager
    async def _connected(
        self, url: str, check: Callable[[str], None]
    ) -> AsyncGenerator[trio.SocketStream, None]:
        """Connect to the server of a URL, if it may be reached."""
        try:
            check(url)
            host, port = host_and_port(url)
            server = await connect(host, port, is_named=self._reach.names_host(url))
        except Refused as error:
            if self._reach.refused is not None:
                await self._reach.refused(url, str(error))  # noqa: ASYNC120 - ends all
            raise Failed(403, f"arcp-trio: {error}") from None
        except trio.TooSlowError:
            raise Failed(504, f"{url} does not answer in time") from None
        except (OSError, UnicodeError) as error:
            raise Failed(502, f"{url}: {error}") from None
        try:
            yield server
        finally:
            with trio.CancelScope(shield=True):  # closing by force does not wait
                await trio.aclose_forcefully(server)


def _passed_on(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    return [(name, value) for name, value in headers if name.lower() not in _OF_ONE_CONNECTION]


async def _next_event(connection: h11.Connection, stream: trio.SocketStream) -> h11.Event:
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Event):
            return event
        if event is h11.PAUSED:
            return h11.ConnectionClosed()
        with trio.fail_after(IDLE_SECONDS):
            connection.receive_data(await stream.receive_some(_READ_BYTES))


async def _send(connection: h11.Connection, stream: trio.SocketStream, *events: h11.Event) -> None:
    data = b"".join(connection.send(event) or b"" for event in events)
    if data:
        with trio.fail_after(IDLE_SECONDS):
            await stream.send_all(data)


async def _pass_on(
    source: trio.SocketStream, target: trio.SocketStream, both: trio.CancelScope
) -> None:
    """Pass bytes on to their end; nothing more in either direction if that is not possible.

    Each piece puts off the deadline of both directions, as in a long answer one of them is silent.
    """
    try:
        while data := await source.receive_some(_READ_BYTES):
            both.deadline = trio.current_time() + IDLE_SECONDS
            await target.send_all(data)
        await target.send_eof()
    except GONE:
        both.cancel(reason="one side is gone")
