"""WebSocket transports over TCP, with an independent client and with writes that are cut off."""

from __future__ import annotations

import itertools
import random
import threading
from contextlib import suppress

import pytest
import trio
from websockets.sync.client import connect as sync_connect

from arcp_trio.transport import TransportClosed
from tests.transport.peers import MAX_BYTES, TEXT, RawPeer, answer

pytestmark = pytest.mark.real_tcp


async def listen() -> tuple[trio.SocketListener, int]:
    """Return a listener and its port."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    return listener, listener.socket.getsockname()[1]


def batches_of_all_sizes(count: int) -> list[list[str]]:
    """Return batches of texts of 0 to 70,000 bytes, most of them short."""
    chance = random.Random(count)
    edges = (0, 1, 125, 126, 127, 65535, 65536, 70000)
    return [
        [
            "x" * (chance.choice(edges) if chance.random() < 0.03 else chance.randrange(700))
            for _ in range(chance.randrange(1, 130))
        ]
        for _ in range(count)
    ]


def read_all(port: int, expected: int) -> tuple[list[str], int, int | None]:
    """Read with the `websockets` library while pinging; return messages, pongs and close code."""
    messages: list[str] = []
    pongs: list[threading.Event] = []
    with sync_connect(f"ws://127.0.0.1:{port}/arcp", max_size=MAX_BYTES) as client:
        for n in range(expected):
            if n % 50 == 0:
                pongs.append(client.ping())
            message = client.recv(timeout=60)
            assert isinstance(message, str)
            messages.append(message)
        client.send("enough")
        for _ in client:
            pass
        answered = sum(pong.wait(0) for pong in pongs)
        return messages, answered, client.protocol.close_code


@pytest.mark.spec("4-1", "1.0/4.1-1")
async def test_another_implementation_reads_batches_in_order_with_pings_in_flight() -> None:
    """The client gets every frame in its place, answers to its pings, and a clean close."""
    batches = batches_of_all_sizes(100)
    texts = [text for batch in batches for text in batch]
    listener, port = await listen()
    with trio.fail_after(30):
        async with listener, trio.open_nursery() as nursery:

            @nursery.start_soon
            async def client() -> None:
                messages, pongs, code = await trio.to_thread.run_sync(read_all, port, len(texts))
                assert messages == texts
                assert pongs == (len(texts) + 49) // 50
                assert code == 1001

            stream = await listener.accept()
            async with answer(stream, max_bytes=MAX_BYTES, peer="client") as server:
                for batch in batches:
                    await server.send([text.encode() for text in batch])
                assert await server.receive() == "enough"
                await server.close(1001, "done")


async def test_a_cancelled_write_leaves_whole_frames_and_a_closed_socket() -> None:
    """Wherever a write is cut off, the peer reads whole frames in order, and then the end."""
    chance = random.Random(1)
    cut = 0
    listener, port = await listen()
    with trio.fail_after(60):
        async with listener:
            for _ in range(50):
                cut += await one_cancelled_write(listener, port, chance)
    assert cut > 0, "no write was cut off"


async def one_cancelled_write(
    listener: trio.SocketListener, port: int, chance: random.Random
) -> bool:
    """Cancel a sender once its peer has read enough; return whether a write was cut off."""
    until = chance.randrange(2_000_000)
    batch = [b"%03d" % n + b"x" * (n * 5) for n in range(200)]
    sending = trio.CancelScope()
    torn = False
    peer = RawPeer(await trio.open_tcp_stream("127.0.0.1", port))

    async def read() -> None:
        await peer.shake_hands()
        size = 0
        expected = itertools.cycle(batch)
        with suppress(EOFError, trio.BrokenResourceError):
            while (received := await peer.receive()) != (TEXT, b"afterwards"):
                assert received == (TEXT, next(expected))
                size += len(received[1])
                if size > until:
                    sending.cancel()
            assert next(expected) == batch[0], "no batch is left unfinished"
            pytest.fail(f"read {await peer.receive()} after the last frame")

    async with peer.stream, trio.open_nursery() as nursery:
        nursery.start_soon(read)
        async with answer(await listener.accept(), max_bytes=100, peer="client") as server:
            with sending:
                while True:
                    await server.send(batch)
            try:  # sent only if the cancellation came between two writes
                await server.send([b"afterwards"])
            except TransportClosed:
                torn = True
    return torn
