"""Which requests lead to the WebSocket, and which get an answer instead."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio.transport import HandshakeFailed, connect
from tests.front.asking import ask, get
from tests.front.echo import EchoRuntime, knock, read_answer
from tests.transport.peers import CLOSE, TEXT, RawPeer, closing, frame, request


@pytest.mark.spec("1.0/4.1-2")
@pytest.mark.parametrize("target", ["/arcp", "/arcp?access=1", "ws://localhost/arcp"])
async def test_websockets_are_at_one_path(target: str) -> None:
    """The path of the WebSocket may have a query, and the target may be a whole URL."""
    async with trio.open_nursery() as nursery:
        stream = knock(EchoRuntime(nursery))
        await stream.send_all(request(target))
        assert (await RawPeer(stream).read_head()).startswith(b"HTTP/1.1 101 ")
        nursery.cancel_scope.cancel()


@pytest.mark.spec("1.0/4.1-2")
async def test_a_client_at_another_path_is_told_that_it_was_refused() -> None:
    """A client that connects to another path gets an exception with the HTTP status."""
    async with trio.open_nursery() as nursery:
        stream = knock(EchoRuntime(nursery))
        with pytest.raises(HandshakeFailed, match="404"):
            async with connect(stream, path="/elsewhere", max_bytes=100):
                pytest.fail("connected")


@pytest.mark.parametrize(
    "change",
    [
        (b"Upgrade: websocket", b"upgrade: WebSocket"),
        (b"Host: localhost", b"hOST:localhost"),
        (b"Host: localhost", b"HOST:   localhost:80   "),
        (b"\r\n", b"\n"),
    ],
)
async def test_the_spelling_of_headers_does_not_matter(change: tuple[bytes, bytes]) -> None:
    """An upgrade works whatever the case and spacing of headers, and with bare line feeds."""
    async with trio.open_nursery() as nursery:
        stream = knock(EchoRuntime(nursery))
        await stream.send_all(request().replace(*change))
        assert (await RawPeer(stream).read_head()).startswith(b"HTTP/1.1 101 ")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("host", ["xn--p1ai:7777", "[::1]:7777", "a" * 63 + ":7777", "x"])
async def test_any_host_may_be_asked_for(host: str) -> None:
    """Away from loopback addresses any Host passes, also ones that libraries cannot decode."""
    async with trio.open_nursery() as nursery:
        stream = knock(EchoRuntime(nursery))
        await stream.send_all(request().replace(b"Host: localhost", f"hOSt: {host}".encode()))
        assert (await RawPeer(stream).read_head()).startswith(b"HTTP/1.1 101 ")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
async def test_a_request_may_come_in_pieces_and_with_frames(size: int) -> None:
    """A request, with frames after it, may arrive a byte at a time or in one packet."""
    data = request() + frame(TEXT, b"hello") + frame(TEXT, b"again") + frame(TEXT, b"bye")
    async with trio.open_nursery() as nursery:
        stream = knock(EchoRuntime(nursery))

        @nursery.start_soon
        async def send() -> None:
            for at in range(0, len(data), size):
                await stream.send_all(data[at : at + size])

        peer = RawPeer(stream)
        assert (await peer.read_head()).startswith(b"HTTP/1.1 101 ")
        assert await peer.receive() == (TEXT, b"hello")
        assert await peer.receive() == (TEXT, b"again")
        assert await peer.receive() == (CLOSE, closing(1000))
        await stream.send_all(frame(CLOSE, closing(1000)))
        assert await peer.read_to_end() == b""


@pytest.mark.parametrize(
    "change",
    [
        (b"Sec-WebSocket-Key", b"X-Key"),
        (b"Connection: Upgrade", b"Connection: close"),
        (b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 8"),
    ],
)
async def test_half_a_websocket_handshake_is_refused(change: tuple[bytes, bytes]) -> None:
    """An incomplete WebSocket handshake gets an HTTP error, and is counted."""
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        stream = knock(runtime)
        await stream.send_all(request().replace(*change))
        answer = await read_answer(stream)
        assert answer.status in (400, 426)
        assert (answer.status == 426) == ("sec-websocket-version" in answer.headers)
    assert (runtime.turned_away, runtime.attached) == (["websocket"], 0)


@pytest.mark.parametrize(
    "more",
    [
        b"Connection: \xe9",
        b"Sec-WebSocket-Extensions: \xe9",
        b"Sec-WebSocket-Protocol: arcp, \xff",
        b"Sec-WebSocket-Key: \x80",
        b"Sec-WebSocket-Version: 13\xa0",
        b"Content-Length: 1",
        b"Content-Length: 0005",
        b"Transfer-Encoding: chunked",
    ],
)
async def test_a_malformed_upgrade_is_answered(more: bytes, autojump_clock: MockClock) -> None:
    """An upgrade with headers that are not ASCII, or with a body, is a bad request."""
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        stream = knock(runtime)
        await stream.send_all(request().replace(b"\r\n\r\n", b"\r\n" + more + b"\r\n\r\n"))
        assert (await read_answer(stream)).status == 400
    assert (runtime.turned_away, runtime.attached) == (["request"], 0)


@pytest.mark.parametrize("more", ["Content-Length: 0", "Cookie: \xe9", "User-Agent: \xe9"])
async def test_an_upgrade_may_say_more(more: str) -> None:
    """An upgrade may have an empty body, and other headers that are not ASCII."""
    async with trio.open_nursery() as nursery:
        stream = knock(EchoRuntime(nursery))
        head = request().replace(b"\r\n\r\n", f"\r\n{more}\r\n\r\n".encode("latin-1"))
        await stream.send_all(head)
        assert (await RawPeer(stream).read_head()).startswith(b"HTTP/1.1 101 ")
        await stream.aclose()


async def test_there_is_no_upgrade_from_http_1_0() -> None:
    """A request for an upgrade in HTTP/1.0 is answered as one without (RFC 9110 §7.8)."""
    assert (await ask(get("/arcp", version="1.0", more="Upgrade: websocket\r\n"))).status == 426
