"""Frames beside trio-websocket: their bytes, bounds on messages, and the order of writes."""

from __future__ import annotations

import os
import random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN, Protocol, Side

from arcp_trio.transport import memory_streams
from arcp_trio.transport.frames import (
    MAX_FRAGMENTS,
    MessageGauge,
    client_texts,
    close_frame,
    server_texts,
)
from arcp_trio.transport.outgoing import WRITE_SLICE
from arcp_trio.transport.stream import FrameStream
from tests.transport.peers import BINARY, CLOSE, PING, PONG, TEXT, chop, closing, frame

SIZES = st.sampled_from((0, 1, 125, 126, 127, 65535, 65536, 70000)) | st.integers(0, 2000)


def parse(data: bytes, *, side: Side) -> list[Frame]:
    """Parse frames with the `websockets` library in the role of `side`."""
    protocol = Protocol(side, state=OPEN)
    protocol.receive_data(data)
    assert protocol.parser_exc is None
    return [event for event in protocol.events_received() if isinstance(event, Frame)]


@given(st.lists(SIZES, max_size=8))
@pytest.mark.spec("1.0/4.1-1")
def test_texts_are_read_by_another_implementation(sizes: list[int]) -> None:
    """The `websockets` library reads batches of a server and of a client as the same texts."""
    texts = [random.randbytes(size // 2).hex().encode() for size in sizes]
    for data, reader in (
        (server_texts(texts), Side.CLIENT),
        (client_texts(texts), Side.SERVER),
    ):
        frames = parse(data, side=reader)
        assert [frame.data for frame in frames] == texts
        assert all(frame.opcode is Opcode.TEXT and frame.fin for frame in frames)


def test_a_client_masks_each_frame_with_its_own_key() -> None:
    """The masking key is new for each frame, so equal texts differ on the wire (RFC 6455 §5.3)."""
    data = client_texts([b"the same"] * 2)
    assert data[: len(data) // 2] != data[len(data) // 2 :]
    assert b"the same" not in data


@pytest.mark.parametrize("client", [False, True])
def test_a_close_keeps_to_the_size_of_a_control_frame(client: bool) -> None:  # noqa: FBT001
    """A long reason of a Close is cut at 125 bytes, between two characters (RFC 6455 §5.5)."""
    data = close_frame(1008, "é" * 200, client=client)
    (read,) = parse(data, side=Side.SERVER if client else Side.CLIENT)
    assert read.opcode is Opcode.CLOSE
    assert bytes(read.data) == closing(1008, "é" * 61)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.booleans())),
    st.lists(st.integers(0, 1 << 20), max_size=30),
    st.booleans(),
)
def test_messages_within_bounds_pass_unchanged(
    messages: list[tuple[list[int], bool]],
    cuts: list[int],
    masked: bool,  # noqa: FBT001
) -> None:
    """Messages within the bound pass unchanged, however they are fragmented and cut into reads."""
    data = b""
    for sizes, ping in messages:
        for index, size in enumerate(sizes):
            opcode = TEXT & 0x0F if index == 0 else 0
            final = 0x80 if index == len(sizes) - 1 else 0
            data += frame(final | opcode, bytes(size), masked=masked)
            if ping:
                data += frame(PING, b"are you there", masked=masked)
    gauge = MessageGauge(1500)
    assert b"".join(gauge.admit(piece) for piece in chop(data, cuts)) == data
    assert not gauge.exceeded


@given(st.integers(1, 70_000), st.lists(st.integers(0, 1 << 20), max_size=10), st.data())
def test_a_frame_that_is_too_large_is_stopped_at_its_header(
    limit: int, cuts: list[int], data: st.DataObject
) -> None:
    """A message of one byte too many is stopped at the header that exceeds the bound."""
    split = data.draw(st.integers(0, limit))
    good = frame(BINARY, bytes(limit)) + frame(BINARY & 0x0F, bytes(split))
    bad = frame(0x80, bytes(limit - split + 1))
    gauge = MessageGauge(limit)
    passed = b"".join(gauge.admit(piece) for piece in chop(good, cuts))
    assert passed == good
    pieces = chop(bad, cuts)
    for piece in pieces:
        passed += gauge.admit(piece)
        if gauge.exceeded:
            break
    assert gauge.exceeded
    assert passed in {good, *(good + bad[:size] for size in range(14))}


def test_empty_fragments_are_counted() -> None:
    """A message of empty fragments is stopped after `MAX_FRAGMENTS`."""
    gauge = MessageGauge(100)
    gauge.admit(frame(TEXT & 0x0F) + frame(0) * (MAX_FRAGMENTS - 1))
    assert not gauge.exceeded
    assert gauge.admit(frame(0) + frame(TEXT, b"a new message")) == b""
    assert gauge.exceeded, "for good"


def server_frames(stream: trio.abc.Stream) -> FrameStream:
    """Return a server's frame stream whose opening handshake is done."""
    return FrameStream(stream, client=False, max_bytes=1000)


async def test_nothing_follows_a_close() -> None:
    """After a Close, texts are refused, and control frames of trio-websocket are dropped."""
    near, far = memory_streams()
    frames = server_frames(near)
    await frames.outgoing.send_close(1001, "bye")
    with pytest.raises(trio.ClosedResourceError):
        await frames.outgoing.send_texts([b"{}"])
    await frames.send_all(frame(PONG, masked=False))
    await frames.outgoing.send_close(1000, "")
    await frames.abort()
    assert await far.receive_some() == frame(CLOSE, closing(1001, "bye"), masked=False)
    assert await far.receive_some() == b""


async def test_a_text_that_waits_for_a_close_is_refused() -> None:
    """A text that waits for the write lock while a Close is written is refused."""
    near, far = memory_streams()
    frames = server_frames(near)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(frames.outgoing.send_texts, [bytes(100_000)])
        await wait_all_tasks_blocked()
        nursery.start_soon(frames.outgoing.send_close, 1000, "")
        await wait_all_tasks_blocked()

        @nursery.start_soon
        async def late() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await frames.outgoing.send_texts([b"{}"])

        await wait_all_tasks_blocked()
        received = bytearray()
        while len(received) < 100_010 + 4:
            received += await far.receive_some()
    assert received.endswith(frame(CLOSE, closing(1000), masked=False))


async def test_nothing_is_written_after_a_torn_frame(autojump_clock: MockClock) -> None:
    """A write that is cut off closes the stream, and writes that waited for it are refused."""
    near, far = memory_streams()
    frames = server_frames(near)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def torn() -> None:
            with trio.move_on_after(5):
                await frames.outgoing.send_texts([bytes(100_000)])

        await wait_all_tasks_blocked()

        @nursery.start_soon
        async def waiting() -> None:
            with pytest.raises(trio.BrokenResourceError):
                await frames.outgoing.send_texts([b"{}"])

    with pytest.raises(trio.BrokenResourceError):
        await frames.outgoing.send_close(1000, "")
    assert frames.outgoing.writing_since is None
    received = bytearray()
    while some := await far.receive_some():
        received += some
    assert set(received[10:]) == {0}, "only what belongs to the one frame"


async def test_a_stalled_write_can_be_seen(autojump_clock: MockClock) -> None:
    """`writing_since` is the time of the last progress of a write, and None without a write."""
    near, far = memory_streams()
    frames = server_frames(near)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(frames.outgoing.send_texts, [bytes(4 * WRITE_SLICE)])
        await trio.sleep(10)
        assert frames.outgoing.writing_since == 0
        received = 0
        while received < WRITE_SLICE + 100:
            received += len(await far.receive_some(WRITE_SLICE))
        await trio.sleep(10)
        assert frames.outgoing.writing_since == 10
        while received < 4 * WRITE_SLICE + 10:
            received += len(await far.receive_some())
    assert frames.outgoing.writing_since is None


@pytest.mark.parametrize("size", [0, 10, 100, 60_000])
async def test_bytes_sent_along_with_the_handshake_are_kept(size: int) -> None:
    """Frames that come in one packet with a server's answer are held until it has been read."""
    near, far = memory_streams()
    head = b"HTTP/1.1 101 Switching Protocols\r\nX: " + b"y" * 60 + b"\r\n\r\n"
    eager = frame(BINARY, os.urandom(size), masked=False)
    await far.send_all(head + eager)
    frames = FrameStream(near, client=True, max_bytes=1 << 20)
    read = bytearray()
    while len(read) < len(head):
        read += await frames.receive_some(37)
    assert read == head
    received = bytearray()
    while len(received) < len(eager):
        received += await frames.receive_some(37)
    assert received == eager
