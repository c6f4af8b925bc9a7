"""WebSocket transports over memory streams, through all of the WebSocket code."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio.transport import Transport, TransportClosed, accept, connect, memory_streams
from arcp_trio.transport.memory import PIPE_BYTES
from tests.transport.peers import (
    BINARY,
    PING,
    PONG,
    TEXT,
    RawPeer,
    answer,
    frame,
    open_pair,
    open_raw,
    read_on,
    request,
)


async def test_batches_arrive_whole_and_in_order_both_ways() -> None:
    """Each frame of a batch arrives as one message, of 0 to 70,000 bytes, in both directions."""
    sizes = [0, 1, 125, 126, 127, 65535, 65536, 70000]
    batches = [[b"%05d" % n + b"x" * size for n, size in enumerate(sizes)] for _ in range(5)]
    async with open_pair() as (server, client):
        for sender, receiver in ((server, client), (client, server)):
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def send(sender: Transport = sender) -> None:
                    for batch in batches:
                        await sender.send(batch)
                    await sender.send([])

                for batch in batches:
                    for text in batch:
                        assert await receiver.receive() == text.decode()


async def test_messages_that_have_come_can_be_taken_at_once() -> None:
    """`receive_unread` returns as many messages as `unread` counts, in order."""
    texts = [b"%d" % n for n in range(1_000)]
    async with open_pair() as (server, client), trio.open_nursery() as nursery:
        nursery.start_soon(server.send, texts)
        seen: list[str | bytes] = []
        while len(seen) < len(texts):
            seen.append(await client.receive())
            count = client.unread
            unread = client.receive_unread()
            assert len(unread) == count
            assert client.unread == 0
            seen.extend(unread)
        assert [str(text).encode() for text in seen] == texts
        assert client.receive_unread() == []


async def test_batches_of_many_senders_are_not_mixed() -> None:
    """Batches of several senders do not mix, and each sender's batches stay in order."""
    async with open_pair() as (server, client), trio.open_nursery() as nursery:

        async def send(sender: int) -> None:
            for n in range(50):
                await server.send([b"%d %d %d" % (sender, n, part) for part in range(3)])

        for sender in range(5):
            nursery.start_soon(send, sender)
        seen = dict.fromkeys(range(5), 0)
        for _ in range(5 * 50):
            sender, n, _part = map(int, (await client.receive()).split())
            assert n == seen[sender]
            seen[sender] += 1
            for part in (1, 2):
                assert await client.receive() == f"{sender} {n} {part}"


async def test_a_cancelled_receive_loses_nothing(autojump_clock: MockClock) -> None:
    """A cancelled receive loses no message."""
    async with open_raw() as (server, peer), trio.open_nursery() as nursery:

        @nursery.start_soon
        async def send() -> None:
            for n in range(100):
                await trio.sleep(1)
                await peer.send(TEXT, b"%d" % n)

        received: list[str | bytes] = []
        while len(received) < 100:
            with trio.move_on_after(0.3):
                received.append(await server.receive())
        assert received == [str(n) for n in range(100)]


async def test_a_binary_message_comes_as_bytes() -> None:
    """A binary message is received as bytes, fragmented or not."""
    async with open_raw() as (server, peer):
        await peer.send(BINARY, b"\x00\xff")
        assert await server.receive() == b"\x00\xff"
        await peer.send(0x02, b"\x00")
        await peer.send(0x80, b"\xff")
        assert await server.receive() == b"\x00\xff"


@pytest.mark.spec("1.0/5.2-1")
async def test_a_text_in_many_fragments() -> None:
    """Fragments may end within a character, and pings may come between them."""
    text = "fragmenté" * 100
    data = text.encode()
    async with open_raw() as (server, peer):
        read_on(server)  # else nobody reads before the first `receive`
        await peer.send(0x01)
        for at in range(len(data)):
            await peer.send(0x00, data[at : at + 1])
            if at % 100 == 0:
                await peer.send(PING, b"%d" % at)
                assert await peer.receive() == (PONG, b"%d" % at)
        await peer.send(0x80)
        assert await server.receive() == text


# --- the opening handshake ---


@pytest.mark.parametrize("cut", [0, 3, 11, 20])
async def test_bytes_read_before_are_the_beginning(cut: int) -> None:
    """`received` may be any part of what follows the request."""
    data = frame(TEXT, b"hello") + frame(PING, b"?") + frame(TEXT, b"again")
    near, far = memory_streams()
    peer = RawPeer(far)
    await far.send_all(data[cut:])
    async with accept(near, key="a key", received=data[:cut], max_bytes=100, peer="raw") as server:
        assert (await peer.read_head()).startswith(b"HTTP/1.1 101 ")
        assert await server.receive() == "hello"
        read_on(server)
        assert await peer.receive() == (PONG, b"?")
        assert await server.receive() == "again"


@pytest.mark.spec("1.0/4.1-2")
async def test_the_answer_proves_that_the_server_knows_websockets() -> None:
    """The answer to the key in RFC 6455 §1.3 is the one that stands there."""
    near, far = memory_streams()
    async with accept(near, key="dGhlIHNhbXBsZSBub25jZQ==", max_bytes=100, peer="raw"):
        head = await RawPeer(far).read_head()
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head


@pytest.mark.parametrize("server", [True, False])
async def test_a_peer_that_leaves_during_the_handshake(
    autojump_clock: MockClock, *, server: bool
) -> None:
    """A peer that closes during the handshake ends it at once."""
    near, far = memory_streams()
    opening = (
        accept(near, key="a key", max_bytes=100, peer="raw")
        if server
        else connect(near, max_bytes=100)
    )
    await far.aclose()
    with pytest.raises(TransportClosed, match="handshake"):
        async with opening:
            pytest.fail("opened")
    assert trio.current_time() == 0


async def test_a_peer_that_does_not_read_is_bounded_by_a_scope_around_the_block(
    autojump_clock: MockClock,
) -> None:
    """A cancelled handshake closes the stream."""
    near, far = memory_streams()
    await near.send_all(bytes(PIPE_BYTES))
    with trio.move_on_after(10) as scope:
        async with accept(near, key="a key", max_bytes=100, peer="raw"):
            pytest.fail("accepted")
    assert scope.cancelled_caught
    assert await RawPeer(far).read_to_end() == bytes(PIPE_BYTES)


async def test_frames_sent_along_with_the_request_are_not_lost() -> None:
    """A message and a ping that come with the request are answered like any others."""
    along = frame(TEXT, b"hello") + frame(PING, b"?")
    async with open_raw(along=along) as (server, peer):
        assert await server.receive() == "hello"
        assert await peer.receive() == (PONG, b"?")


# --- what the block raises ---


class BoomError(Exception):
    """Raised by a block."""


@pytest.mark.parametrize("cancelled", [True, False])
async def test_the_block_s_exception_is_raised_unchanged(*, cancelled: bool) -> None:
    """The block's exception is not in a group, nor replaced by a cancellation from outside."""
    near, far = memory_streams()
    await far.send_all(request())
    boom = BoomError()

    async def block(outside: trio.CancelScope) -> None:
        async with answer(near, max_bytes=100):
            if cancelled:
                outside.cancel()
            raise boom

    with trio.CancelScope() as outside, pytest.raises(BoomError) as raised:
        await block(outside)
    assert raised.value is boom
    assert boom.__context__ is None


async def test_a_cancelled_block_is_left_cancelled(autojump_clock: MockClock) -> None:
    """A deadline that passes inside the block is caught by its own scope."""
    near, far = memory_streams()
    await far.send_all(request())
    with trio.move_on_after(30) as scope:
        async with answer(near, max_bytes=100) as server:
            await server.receive()
    assert scope.cancelled_caught
    assert (await RawPeer(far).read_to_end()).startswith(b"HTTP/1.1 101 ")


async def test_a_deadline_can_be_lifted_once_the_handshake_is_done(
    autojump_clock: MockClock,
) -> None:
    """A deadline for the handshake can be lifted inside the block."""
    async with open_raw() as (server, _peer):
        assert server.peer == "raw"
    near, far = memory_streams()
    await far.send_all(request())
    with trio.move_on_after(10) as scope:
        async with answer(near, max_bytes=100) as server:
            scope.deadline = float("inf")
            await trio.sleep(100)
            await server.send([b"still here"])
    assert not scope.cancelled_caught
