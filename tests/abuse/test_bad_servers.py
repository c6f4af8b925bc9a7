"""What a server may do to a client as it ends: the client returns, and says why."""

from __future__ import annotations

import base64
import hashlib
import itertools
import socket
from collections.abc import Sequence
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import ArcpError, ConnectionFailed, connect
from arcp_trio.testing import open_pair
from arcp_trio.transport import Transport, TransportClosed
from arcp_trio.transport import connect as open_websocket
from tests.abuse.support import RESET, agents
from tests.stage import make_runtime
from tests.transport.peers import CLOSE, PING, PONG, TEXT, closing, frame

ACTS = {
    "close": frame(CLOSE, closing(1001, "going"), masked=False),
    "ping": frame(PING, b"?", masked=False),
    "text": frame(TEXT, b'{"any": "thing"}', masked=False),
    "half": frame(TEXT, b'{"any": "thing"}', masked=False)[:9],
}
WORDS: list[bytes] = [
    b"\xff" * 100,
    frame(TEXT, b"masked"),
    frame(TEXT, b"\xff", masked=False),
    b"\x81\x7f\x00" + b"\xff" * 7,
    frame(0x80, b"goes on with nothing", masked=False),
    frame(0x01, masked=False) + frame(0x00, masked=False) * 20_000,
    frame(PING, masked=False) * 1_000 + frame(CLOSE, closing(1005), masked=False),
    frame(PONG, b"unasked", masked=False) * 1_000 + frame(CLOSE, masked=False),
    frame(TEXT, b"no JSON", masked=False) * 200,
]


async def answer(stream: trio.SocketStream, words: Sequence[bytes], *, reset: bool) -> None:
    """Answer the opening handshake, send these bytes write by write, and close."""
    with suppress(trio.BrokenResourceError):
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        await stream.send_all(switching(head))
        for piece in words:
            await stream.send_all(piece)
            await trio.lowlevel.checkpoint()
    if reset:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    await trio.aclose_forcefully(stream)


def switching(head: bytes) -> bytes:
    """Return the right answer to a client's upgrade request."""
    (key,) = [
        line.partition(b":")[2].strip()
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"sec-websocket-key:")
    ]
    accepted = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + base64.b64encode(accepted) + b"\r\n\r\n"
    )


@pytest.mark.real_tcp
@pytest.mark.parametrize("reset", [True, False])
async def test_a_close_and_a_loss_in_every_order(*, reset: bool) -> None:
    """Receiving, sending and leaving end, whatever comes before the end and in which order."""
    orders = [
        order for size in range(len(ACTS) + 1) for order in itertools.permutations(ACTS, size)
    ]
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = listener.socket.getsockname()
    with trio.fail_after(60):
        async with listener, trio.open_nursery() as nursery:
            for order in orders:
                client = await trio.open_tcp_stream(*address)
                server = await listener.accept()
                nursery.start_soon(say, server, order, reset)
                with suppress(TransportClosed):  # the loss may come before the answer is read
                    async with open_websocket(client, max_bytes=1_000) as transport:
                        for on_and_on in (receive, send):
                            with pytest.raises(TransportClosed):
                                await on_and_on(transport)
                        await transport.close()
                        with pytest.raises(TransportClosed):
                            await transport.receive()


async def receive(transport: Transport) -> None:
    """Receive until the end."""
    while True:
        await transport.receive()


async def send(transport: Transport) -> None:
    """Send until the end."""
    while True:
        await transport.send([b"anybody?"])


async def say(server: trio.SocketStream, order: Sequence[str], reset: bool) -> None:  # noqa: FBT001
    """Run a server that does this."""
    await answer(server, [ACTS[act] for act in order], reset=reset)


@pytest.mark.real_tcp
@pytest.mark.parametrize("words", WORDS, ids=range(len(WORDS)))
async def test_a_server_that_talks_nonsense(words: bytes) -> None:
    """Connecting to a server that sends nonsense fails at once, even if it keeps listening."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]

    async def serve() -> None:
        while True:
            server = await listener.accept()
            nursery.start_soon(answer_and_listen, server, words)

    with trio.fail_after(60):
        async with listener, trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            with pytest.raises((ConnectionFailed, ArcpError)):
                async with connect(f"ws://127.0.0.1:{port}/arcp", token="t"):
                    pytest.fail("that is no runtime")
            nursery.cancel_scope.cancel()


async def answer_and_listen(server: trio.SocketStream, words: bytes) -> None:
    """Send this, and read on without another word."""
    with suppress(trio.BrokenResourceError):
        async with server:
            await server.send_all(switching(await server.receive_some()) + words)
            async for _ in server:
                pass


async def test_leaving_with_much_unread(autojump_clock: MockClock) -> None:
    """A client can leave with a hundred unread events."""
    async with make_runtime(agents) as runtime:
        async with open_pair(runtime) as client:
            job = await client.submit("chatty", 100)
            await job.result()
            began = trio.current_time()
        assert trio.current_time() - began < 1
