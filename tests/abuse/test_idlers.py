"""Crowds of clients that send nothing, or very slowly, over real sockets."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Limits
from tests.abuse.support import agents, is_served, peer_of, serving
from tests.footprint import footprint, settles, tasks
from tests.stage import make_runtime
from tests.transport.peers import CLOSE, RawPeer, closing, request

pytestmark = pytest.mark.real_tcp

SILENT = 300
SLOW = 100
HANDSHAKE_SECONDS = 10


async def crowd_of(port: int, size: int) -> list[trio.SocketStream]:
    """Open this many connections."""
    return [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(size)]


async def newcomer_is_served(port: int) -> None:
    """Check that a new client can connect and have a job done."""
    async with peer_of(port) as peer:
        await peer.hello()
        await is_served(peer)
        await peer.send("session.close")
        await peer.expect("session.closed")


async def test_silent_and_slow_crowds_keep_nobody_out(mock_clock: MockClock) -> None:
    """A newcomer is served at every second; after the handshake's time the crowd is closed.

    The clock only moves by jumps, so the speed of the machine does not matter.
    """
    runtime = make_runtime(agents, limits=Limits(handshake_seconds=HANDSHAKE_SECONDS))
    async with serving(runtime) as port:
        await newcomer_is_served(port)
        before = await footprint()
        silent, slow = await crowd_of(port, SILENT), await crowd_of(port, SLOW)
        for at in range(HANDSHAKE_SECONDS):
            for stream in slow:
                await stream.send_all(request()[at : at + 1])
            await newcomer_is_served(port)
            assert tasks() >= before[1] + SILENT + SLOW
            mock_clock.jump(1)
        for stream in silent + slow:
            await is_closed(stream)
        await newcomer_is_served(port)
        await settles(before)


async def is_closed(stream: trio.abc.Stream) -> None:
    """Check that the server has ended this connection, perhaps with an HTTP response."""
    async with stream:
        with suppress(trio.BrokenResourceError):
            words = await RawPeer(stream).read_to_end()
            assert not words or words.startswith(b"HTTP/1.1 4")


async def test_a_crowd_behind_the_opening_handshake_keeps_nobody_out(
    mock_clock: MockClock,
) -> None:
    """WebSockets without a hello are told so and closed after the handshake's time."""
    runtime = make_runtime(agents, limits=Limits(handshake_seconds=HANDSHAKE_SECONDS))
    async with serving(runtime) as port:
        await newcomer_is_served(port)
        before = await footprint()
        crowd = [RawPeer(stream) for stream in await crowd_of(port, SLOW)]
        for peer in crowd:
            await peer.shake_hands(along=b"\x81")
        for _ in range(HANDSHAKE_SECONDS):
            await newcomer_is_served(port)
            mock_clock.jump(1)
        for peer in crowd:
            assert b"UNAUTHENTICATED" in (await peer.receive())[1]
            assert await peer.receive() == (CLOSE, closing(1008, "UNAUTHENTICATED"))
        await wait_all_tasks_blocked()
        mock_clock.jump(runtime.limits.close_seconds)
        for peer in crowd:
            await is_closed(peer.stream)
        await settles(before)
