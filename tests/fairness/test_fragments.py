"""Frames that cost much and say little are handled a few at a time, and at a bounded speed."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio.transport import accept, memory_streams
from arcp_trio.transport.base import HasPings, MessageTooBig
from arcp_trio.transport.frames import FIRST_FRAGMENTS, PING, MessageGauge
from arcp_trio.transport.pace import PARTS_BURST_SECONDS, PARTS_PER_SECOND, pace_of_parts
from arcp_trio.transport.stream import FRAMES_A_TURN, FrameStream
from arcp_trio.transport.tap import FRAMES_A_TURN as TEXTS_A_TURN
from arcp_trio.transport.tap import TextTap
from tests.transport.peers import TEXT, RawPeer, frame, open_raw

BEGIN, GO_ON = frame(0x01, b"{"), frame(0x00)
READ_BYTES = 64 * 1024


@pytest.mark.parametrize("small", [GO_ON, frame(PING)], ids=["fragments", "pings"])
async def test_few_frames_are_handled_at_once(small: bytes, autojump_clock: MockClock) -> None:
    """A read full of tiny frames is handed on in turns of 64 frames, each after a checkpoint."""
    near, far = memory_streams()
    frames = FrameStream(near, client=False, max_bytes=1 << 20)
    count = READ_BYTES // len(small)
    await far.send_all(((BEGIN if small is GO_ON else b"") + small * count)[:READ_BYTES])
    gauge, turns = MessageGauge(1 << 20), 0
    while gauge.frames < count - 1:
        before = gauge.frames
        with trio.testing.assert_checkpoints():
            gauge.admit(await frames.receive_some(READ_BYTES))
        assert gauge.frames - before <= FRAMES_A_TURN
        turns += 1
    assert turns >= count // FRAMES_A_TURN


async def test_tiny_texts_are_taken_a_few_at_once() -> None:
    """A read full of tiny texts is looked at in turns, and none is lost."""
    tap = TextTap(masked=True, max_bytes=1000)
    count = 8_000
    assert tap.pick(frame(TEXT, b"x") * count) == b""
    turns = 1
    while tap.has_more:
        assert len(tap.texts) == turns * TEXTS_A_TURN
        assert tap.pick(b"") == b""
        turns += 1
    assert list(tap.texts) == ["x"] * count


async def test_a_stranger_gets_few_fragments(autojump_clock: MockClock) -> None:
    """The first message of a stranger is refused after 64 fragments."""
    near, far = memory_streams()
    opening = accept(near, key="a key", max_bytes=1 << 20, first_bytes=1000, peer="a stranger")
    async with opening as server:
        await far.send_all(BEGIN + GO_ON * FIRST_FRAGMENTS)
        with pytest.raises(MessageTooBig, match="64 fragments"):
            await server.receive()


@pytest.mark.parametrize("small", [GO_ON, frame(PING)], ids=["fragments", "pings"])
async def test_small_frames_have_a_speed(small: bytes, autojump_clock: MockClock) -> None:
    """A peer with a session may send fragments and pings at a bounded speed only."""
    count = 10_000
    async with open_raw() as (server, peer), trio.open_nursery() as nursery:
        nursery.start_soon(_discard, peer)
        began = trio.current_time()
        nursery.start_soon(peer.stream.send_all, BEGIN + small * count + frame(0x80, b"}"))
        assert await server.receive() == "{}"
        least = count / PARTS_PER_SECOND - PARTS_BURST_SECONDS - FRAMES_A_TURN / PARTS_PER_SECOND
        assert trio.current_time() - began >= least
        nursery.cancel_scope.cancel()


async def test_connections_share_a_speed(autojump_clock: MockClock) -> None:
    """Twenty connections with one pace may send no more fragments than one."""
    count, pace = 500, pace_of_parts()

    async def send() -> None:
        async with open_raw() as (server, peer):
            assert isinstance(server, HasPings)
            server.share_pace(pace)
            await peer.stream.send_all(BEGIN + GO_ON * count + frame(0x80, b"}"))
            assert await server.receive() == "{}"

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(send)
    assert trio.current_time() >= 20 * count / PARTS_PER_SECOND - 2 * PARTS_BURST_SECONDS


async def test_whole_messages_have_no_such_speed(autojump_clock: MockClock) -> None:
    """Messages of one frame are not slowed down, also when trio-websocket reads them."""
    async with open_raw() as (server, peer), trio.open_nursery() as nursery:
        messages = [BEGIN + frame(0x80, b"}"), *[frame(TEXT, b"x")] * 10_000]
        nursery.start_soon(peer.stream.send_all, b"".join(messages))
        assert await server.receive() == "{}"
        for _ in range(10_000):
            assert await server.receive() == "x"
        assert trio.current_time() == 0


async def _discard(peer: RawPeer) -> None:
    while await peer.stream.receive_some():
        pass


@pytest.mark.parametrize("small", [GO_ON, frame(TEXT)], ids=["fragments", "messages"])
async def test_what_is_discarded_has_a_speed(small: bytes, autojump_clock: MockClock) -> None:
    """Frames that come after this side's Close are looked at at a bounded speed, too."""
    sent = 0

    async def flood(peer: RawPeer) -> None:
        nonlocal sent
        await peer.stream.send_all(BEGIN)
        while True:
            await peer.stream.send_all(small * 100)
            sent += 100

    async with open_raw() as (server, peer), trio.open_nursery() as nursery:
        nursery.start_soon(flood, peer)
        with trio.move_on_after(60) as scope:
            await server.close()
        assert scope.cancelled_caught
        nursery.cancel_scope.cancel()
    assert 60 <= sent / PARTS_PER_SECOND <= 90
