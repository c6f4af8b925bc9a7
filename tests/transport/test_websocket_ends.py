"""WebSocket transports: how a connection ends, and errors of the peer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.transport import MessageTooBig, Transport, TransportClosed
from arcp_trio.transport.frames import MAX_FRAGMENTS
from tests.transport.peers import (
    BINARY,
    CLOSE,
    MAX_BYTES,
    PING,
    PONG,
    TEXT,
    closing,
    frame,
    open_pair,
    open_raw,
    read_on,
)


async def ends(transport: Transport) -> TransportClosed:
    """Receive until the transport is closed, and return the exception."""
    while True:
        try:
            await transport.receive()
        except TransportClosed as closed:
            return closed


# --- the end ---


@pytest.mark.parametrize("by_server", [True, False])
async def test_the_close_code_reaches_the_other_side(
    autojump_clock: MockClock, *, by_server: bool
) -> None:
    """The peer gets the close code and the reason, and then neither side can send."""
    async with open_pair() as (server, client):
        first, second = (server, client) if by_server else (client, server)
        read_on(server)
        await first.send([b"last words"])
        await first.close(1001, "going away")
        assert await second.receive() == "last words"
        with pytest.raises(TransportClosed, match="1001: going away") as closed:
            await second.receive()
        assert closed.value.code == 1001
        for transport in (first, second):
            with pytest.raises(TransportClosed):
                await transport.send([b"{}"])
            with pytest.raises(TransportClosed):
                await transport.receive()
            await transport.close(1011)
    assert trio.current_time() == 0


async def test_a_pending_receive_ends_with_the_farewell() -> None:
    """Closing ends a pending receive, and a message that is on its way is not returned."""
    async with open_raw() as (server, peer), trio.open_nursery() as nursery:

        @nursery.start_soon
        async def receive() -> None:
            with pytest.raises(TransportClosed):
                await server.receive()

        await wait_all_tasks_blocked()
        nursery.start_soon(server.close)
        assert await peer.receive() == (CLOSE, closing(1000))
        await peer.send(TEXT, b"too late")
        await peer.send(CLOSE, closing(1000))


async def test_leaving_the_block_closes_the_stream() -> None:
    """Leaving the block without closing ends the stream at once, without a Close."""
    async with open_raw() as (_server, peer):
        pass
    assert await peer.read_to_end() == b""


async def test_a_peer_may_ping_after_the_close(autojump_clock: MockClock) -> None:
    """Pings and messages that cross with a Close are ignored, and the close is clean."""
    async with open_raw() as (server, peer), trio.open_nursery() as nursery:
        nursery.start_soon(server.close, 1001)
        assert await peer.receive() == (CLOSE, closing(1001))
        for _ in range(3):
            await peer.send(PING, b"still there?")
            await peer.send(TEXT, b"still there?")
        await wait_all_tasks_blocked()
        await peer.send(CLOSE, closing(1001))
    assert await peer.read_to_end() == b""
    assert trio.current_time() == 0


async def test_a_farewell_to_a_silent_peer_is_bounded_by_the_caller(
    autojump_clock: MockClock,
) -> None:
    """Closing waits for a silent peer, or one that does not read, as long as the caller allows."""
    async with open_raw() as (server, peer):
        with trio.move_on_after(2) as bound:
            await server.close()
        assert bound.cancelled_caught
    assert await peer.read_to_end() == frame(CLOSE, closing(1000), masked=False)

    async with open_raw() as (server, peer), trio.open_nursery() as nursery:
        nursery.start_soon(ignore_closed, server.send, [bytes(200_000)])
        await wait_all_tasks_blocked()
        with trio.move_on_after(2) as bound:
            await server.close()
        assert bound.cancelled_caught
        nursery.cancel_scope.cancel()
    assert trio.current_time() == 4


async def ignore_closed(
    send: Callable[[Sequence[bytes]], Awaitable[None]], frames: Sequence[bytes]
) -> None:
    """Send, and ignore that the transport is closed."""
    with suppress(TransportClosed):
        await send(frames)


async def test_messages_that_came_before_the_end_are_received() -> None:
    """Messages that came before the end of the stream are received."""
    async with open_raw() as (server, peer):
        for n in range(10):
            await peer.send(TEXT, b"%d" % n)
        await peer.stream.aclose()
        assert [await server.receive() for _ in range(10)] == [str(n) for n in range(10)]
        assert (await ends(server)).code == 1006
        with pytest.raises(TransportClosed):
            await server.send([b"{}"])
        await server.close()


async def test_pings_and_the_close_wait_for_a_full_queue_and_no_longer() -> None:
    """A ping and a Close after more messages than the queue holds are answered in time."""
    async with open_raw() as (server, peer):
        for n in range(200):
            await peer.send(TEXT, b"%d" % n)
        await peer.send(PING, b"behind")
        await peer.send(CLOSE, closing(1000))
        await wait_all_tasks_blocked()
        for n in range(200):
            assert await server.receive() == str(n)
        assert (await ends(server)).code == 1000
        assert await peer.receive() == (PONG, b"behind")
        assert await peer.receive() == (CLOSE, closing(1000))


@pytest.mark.parametrize("size", [1_000, 70_000, 199_999, 200_000])
@pytest.mark.parametrize("first", [TEXT, BINARY])
async def test_messages_that_wait_are_bounded_by_their_size(first: int, size: int) -> None:
    """Large messages are not read ahead beyond the limit of one message and the buffers below."""
    async with open_raw(max_bytes=200_000) as (server, peer), trio.open_nursery() as nursery:
        sent: list[int] = []

        async def send_all() -> None:
            for n in range(200):
                half = size // 2
                await peer.send(first & 0x0F, b"%06d" % n + bytes(half - 6))  # in two fragments
                await peer.send(0x80, bytes(size - half))
                sent.append(n)

        nursery.start_soon(send_all)
        await wait_all_tasks_blocked()
        # Those that trio-websocket holds, and those in the pipe.
        assert len(sent) * size < 3 * 200_000 + 2 * 64 * 1024
        for n in range(200):
            message = await server.receive()
            assert len(message) == size
            assert int(message[:6]) == n


# --- what a peer can do wrong ---


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (frame(TEXT, b"\xff\xfe"), 1007),
        (frame(0x83, b"reserved opcode"), 1002),
        (frame(0x80, b"continues nothing"), 1002),
        (frame(0xC1, b"reserved bit"), 1002),
        (frame(0x09, b"fragmented ping"), 1002),
        (frame(PING, bytes(126)), 1002),
        (frame(TEXT, b"unmasked", masked=False), 1002),
        (frame(0x01, b"a") + frame(0x01, b"b"), 1002),
    ],
)
@pytest.mark.spec("1.0/5.2-1")
async def test_a_broken_frame_ends_the_connection_with_its_reason(
    bad: bytes, code: int, autojump_clock: MockClock
) -> None:
    """A broken frame is answered by a Close with its code, after the messages before it."""
    async with open_raw() as (server, peer):
        await peer.send(TEXT, b"good")
        await peer.stream.send_all(bad)
        assert await server.receive() == "good"
        assert (await ends(server)).code == code
        first, payload = await peer.receive()
        assert (first, payload[:2]) == (CLOSE, closing(code))
        with trio.move_on_after(2):
            await server.close()
    assert await peer.read_to_end() == b""


@pytest.mark.parametrize(
    "bad",
    [
        frame(CLOSE, b"\x03"),
        frame(CLOSE, closing(1005)),
        frame(CLOSE, closing(1000) + b"\xff"),
        frame(CLOSE, closing(1000)) + frame(CLOSE, closing(1000)) + frame(PING),
        frame(CLOSE, closing(1000)) + b"\xff" * 1000,
        b"\xff" * 1000,
        frame(PONG, b"unasked"),
    ],
)
@pytest.mark.parametrize("close_first", [True, False])
async def test_nothing_a_peer_sends_comes_out_as_another_exception(
    bad: bytes, autojump_clock: MockClock, *, close_first: bool
) -> None:
    """Odd Closes, garbage and frames after the end are a closed transport, at once."""
    async with open_raw() as (server, peer), trio.open_nursery() as nursery:
        if close_first:
            nursery.start_soon(server.close)
            await wait_all_tasks_blocked()
        await peer.stream.send_all(bad)
        await wait_all_tasks_blocked()
        await peer.stream.aclose()
        assert isinstance(await ends(server), TransportClosed)
        await server.close()
    assert trio.current_time() == 0


@pytest.mark.parametrize("text", ["x" * MAX_BYTES, "é" * (MAX_BYTES // 2), "💶" * (MAX_BYTES // 4)])
@pytest.mark.parametrize("to_server", [True, False])
async def test_the_limit_counts_bytes(
    text: str, autojump_clock: MockClock, *, to_server: bool
) -> None:
    """A message of the limit's size is received; one byte more gets a Close with 1009."""
    async with open_pair() as (server, client), trio.open_nursery() as nursery:
        sender, receiver = (client, server) if to_server else (server, client)
        nursery.start_soon(sender.send, [text.encode()])
        assert await receiver.receive() == text
        nursery.start_soon(ignore_closed, sender.send, [b"before", text.encode() + b"x"])
        assert await receiver.receive() == "before"
        with pytest.raises(MessageTooBig) as too_big:
            await receiver.receive()
        assert too_big.value.code == 1009
        nursery.start_soon(receiver.close)
        assert (await ends(sender)).code == 1009
    assert trio.current_time() == 0


async def test_a_message_too_big_is_refused_by_its_header() -> None:
    """A message that is too big is refused by its header, or by that of the fragment too much."""
    async with open_raw() as (server, peer):
        await peer.stream.send_all(frame(TEXT, bytes(64 * 1024 * 1024))[:14])
        assert isinstance(await ends(server), MessageTooBig)
        await server.send([b"why"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.close)
            assert await peer.receive() == (TEXT, b"why")
            assert (await peer.receive())[1][:2] == closing(1009)
            nursery.cancel_scope.cancel()
    async with open_raw(max_bytes=1000) as (server, peer):
        await peer.send(0x01, bytes(999))
        await peer.send(0x00, bytes(2))
        assert isinstance(await ends(server), MessageTooBig)


async def test_an_oversized_message_and_then_silence(autojump_clock: MockClock) -> None:
    """A peer that sends too much and does not close gets 1009, and the caller's timeout holds."""
    async with open_raw(max_bytes=1000) as (server, peer):
        await peer.send(TEXT, bytes(1001))
        assert isinstance(await ends(server), MessageTooBig)
        with trio.move_on_after(2) as bound:
            await server.close()
        assert bound.cancelled_caught
    first = await peer.read_to_end()
    assert first[2:4] == closing(1009)


async def test_endless_fragments_of_nothing_are_refused(autojump_clock: MockClock) -> None:
    """An unfinished message of empty fragments is refused."""
    async with open_raw() as (server, peer):
        await peer.stream.send_all(frame(0x01))

        async def flood() -> None:
            for _ in range(2 * MAX_FRAGMENTS // 1000):
                await peer.stream.send_all(frame(0x00) * 1000)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            assert isinstance(await ends(server), MessageTooBig)
            with trio.move_on_after(2):
                await server.close()
    assert (await peer.read_to_end())[2:4] == closing(1009)
