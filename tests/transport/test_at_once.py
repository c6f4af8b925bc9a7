"""Frames that are sent without waiting, and what follows when not all of them fit."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio.transport import Transport, TransportClosed, connect, memory_streams
from arcp_trio.transport.base import SendsAtOnce
from tests.transport.peers import answer, read_on


@asynccontextmanager
async def _sockets() -> AsyncGenerator[tuple[trio.abc.Stream, trio.abc.Stream]]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        client = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        yield await listener.accept(), client


@asynccontextmanager
async def _pipes() -> AsyncGenerator[tuple[trio.abc.Stream, trio.abc.Stream]]:
    yield memory_streams()


@asynccontextmanager
async def _open(kind: str) -> AsyncGenerator[tuple[SendsAtOnce, Transport]]:
    async with _sockets() if kind == "sockets" else _pipes() as (near, far):
        opened, open_ones, over = trio.Event(), list[SendsAtOnce](), trio.Event()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def serve() -> None:
                async with answer(near, max_bytes=10**8) as server:
                    assert isinstance(server, SendsAtOnce)
                    open_ones.append(server)
                    opened.set()
                    await over.wait()

            async with connect(far, max_bytes=10**8) as client:
                await opened.wait()
                yield open_ones[0], client
            over.set()


async def _talk_until_it_fails(server: SendsAtOnce, client: Transport) -> None:
    read_on(server)
    await client.close()
    while True:
        if server.sends_at_once:
            server.send_at_once([b"anybody there?"])
        await server.send([])
        await trio.sleep(0.01)


kinds = pytest.mark.parametrize("kind", ["sockets", "pipes"])


@kinds
async def test_what_fits_is_sent_whole(kind: str) -> None:
    """A few frames are sent at once, and arrive in order with those of an ordinary send."""
    async with _open(kind) as (server, client):
        assert server.sends_at_once
        assert server.send_at_once([b"one", b"two"])
        await server.send([b"three"])
        assert server.send_at_once([b"four"])
        assert [await client.receive() for _ in range(4)] == ["one", "two", "three", "four"]


@kinds
async def test_the_rest_of_what_does_not_fit_comes_before_the_next_send(kind: str) -> None:
    """Frames that a peer who does not read has no room for are finished by the next send."""
    frames = [b"%07d" % n * 1_000 for n in range(3_000)]
    async with _open(kind) as (server, client), trio.open_nursery() as nursery:
        assert not server.send_at_once(frames)
        assert not server.sends_at_once  # nothing may come between
        sent = trio.Event()

        @nursery.start_soon
        async def send() -> None:
            await server.send([b"the last"])
            sent.set()

        for frame in frames:
            assert await client.receive() == frame.decode()
        assert await client.receive() == "the last"
        with trio.fail_after(60):
            await sent.wait()
        assert server.sends_at_once


@kinds
async def test_nothing_is_sent_at_once_during_a_write(kind: str) -> None:
    """While a write waits for the peer to read, frames are not begun beside it."""
    async with _open(kind) as (server, client), trio.open_nursery() as nursery:
        nursery.start_soon(server.send, [b"x" * 100_000] * 300)
        await wait_all_tasks_blocked()
        assert server.writing_since is not None
        assert not server.sends_at_once
        for _ in range(300):
            assert len(await client.receive()) == 100_000


@kinds
async def test_the_write_that_follows_tells_of_a_peer_that_has_gone(kind: str) -> None:
    """Frames for a peer that is gone are lost, and the next send raises `TransportClosed`."""
    async with _open(kind) as (server, client):
        with pytest.raises(TransportClosed), trio.fail_after(60):
            await _talk_until_it_fails(server, client)
