"""A flood of connections from one address closes its own connections, and keeps nobody out."""

from __future__ import annotations

import logging
from collections import deque

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Limits, Runtime, StaticTokens
from arcp_trio.front.repeats import Repeats
from arcp_trio.front.serve import serve
from arcp_trio.front.waiting import WaitingRoom
from arcp_trio.testing.peer import TEST_TOKEN, Peer
from arcp_trio.testing.recorder import WireRecorder
from arcp_trio.transport import connect
from tests.front.echo import EchoRuntime, knock
from tests.transport.peers import TEXT, RawPeer, frame

ROOM = 32
CLIENTS = 20


@pytest.mark.parametrize(
    ("flood", "clients"),
    [
        ("10.0.0.1:{}", "10.0.1.{}:1"),
        ("[2001:db8:0:1::{:x}]:1", "[2001:db8:1:{:x}::1]:1"),
    ],
    ids=["IPv4", "IPv6"],
)
async def test_the_address_with_most_makes_room(
    flood: str, clients: str, autojump_clock: MockClock
) -> None:
    """Clients from elsewhere keep their place while a thousand come from one network."""
    async with trio.open_nursery() as nursery:
        runtime, room = EchoRuntime(nursery), WaitingRoom(ROOM)
        streams = []
        for n in range(1000):
            knock(runtime, room=room, peer=flood.format(n))
            if n % 50 == 0:
                streams.append(knock(runtime, room=room, peer=clients.format(n)))
            await wait_all_tasks_blocked()
        for stream in streams:
            peer = RawPeer(stream)
            await peer.shake_hands(along=frame(TEXT, b"hello"))
            assert await peer.receive() == (TEXT, b"hello")
        assert len(streams) == CLIENTS
        assert len(runtime.turned_away) == 1000 + CLIENTS - ROOM
        nursery.cancel_scope.cancel()


async def test_a_flood_is_one_line_a_second(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """However many connections are turned away, the log has a line a second, with their number."""
    caplog.set_level(logging.INFO)
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        failures = Repeats(logging.getLogger("front"), "connection turned away")
        for _ in range(500):
            await knock(runtime, failures=failures).send_all(b"no HTTP\r\n\r\n")
            await trio.sleep(0.01)
        assert runtime.turned_away == ["request"] * 500
        nursery.cancel_scope.cancel()
    lines = [each for each in caplog.records if each.message == "connection turned away"]
    times = [getattr(each, "times", 1) for each in lines]
    assert times[0] == 1
    assert times[1:] == [pytest.approx(100, abs=2)] * 4


@pytest.mark.real_tcp
async def test_distant_clients_get_in() -> None:
    """Twenty slow clients open sessions while connections come as fast as one address can."""
    limits = Limits(connections_before_handshake=ROOM)
    runtime = Runtime(auth=StaticTokens({TEST_TOKEN: "alice"}), limits=limits)
    with trio.fail_after(60):
        async with runtime, trio.open_nursery() as nursery:
            listeners = await nursery.start(serve, runtime, "127.0.0.1", 0)
            port = listeners[0].socket.getsockname()[1]
            for _ in range(4):
                nursery.start_soon(_flood, port)
            async with trio.open_nursery() as clients:
                for n in range(CLIENTS):
                    clients.start_soon(_visit, port, f"127.0.1.{n + 1}")
            assert 'reason="connections_before_handshake"' in runtime.exposition()
            nursery.cancel_scope.cancel()


async def _flood(port: int) -> None:
    streams: deque[trio.SocketStream] = deque()
    try:
        while True:
            streams.append(await trio.open_tcp_stream("127.0.0.1", port, local_address="127.0.0.2"))
            if len(streams) > 2 * ROOM:
                streams.popleft().socket.close()
    finally:
        for stream in streams:
            stream.socket.close()


async def _visit(port: int, address: str) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", port, local_address=address)
    await trio.sleep(1)
    async with connect(stream, max_bytes=100_000) as transport:
        peer = Peer(transport, stream, WireRecorder())
        await peer.hello()
        await peer.close()
