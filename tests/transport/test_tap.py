"""Texts taken before trio-websocket sees them: the same messages, in the same order."""

from __future__ import annotations

import random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN, Protocol, Side
from websockets.sync.client import connect as sync_connect

from arcp_trio.transport import memory_streams
from arcp_trio.transport.memory import PIPE_BYTES
from arcp_trio.transport.stream import QUEUED_MESSAGES
from arcp_trio.transport.tap import TextTap
from tests.transport.peers import (
    BINARY,
    CLOSE,
    MAX_BYTES,
    PING,
    PONG,
    TEXT,
    RawPeer,
    answer,
    chop,
    closing,
    frame,
    open_raw,
    read_on,
)

KEY = b"\x01\x80\xff\x55"
Read = tuple[Opcode, bool, bytes]


CUTS = st.lists(st.integers(0, 1 << 20), max_size=30)


# --- what is taken, and what passes ---


def masked_frame(first: int, payload: bytes, *, masked: bool) -> bytes:
    """Return a frame, whose mask changes every byte of the payload."""
    data = frame(first, payload, masked=masked)
    if not masked:
        return data
    header = data[: len(data) - len(payload) - len(KEY)]
    return header + KEY + bytes(byte ^ KEY[at % 4] for at, byte in enumerate(payload))


ORDINARY = st.sampled_from((TEXT, TEXT, TEXT, PING, PONG))
UNUSUAL = st.sampled_from((0x01, 0x00, 0x80, BINARY, CLOSE, 0xC1, 0x83, 0x09))
LENGTHS = st.sampled_from((0, 1, 62, 63, 500)) | st.integers(0, 150)
CUT_OFF = (b"", b"\x81", b"\x81\xfe\x00", b"\x81\xfe\x00\x05", b"\x81\xfe\x00\x05abcd12345")


@st.composite
def streams(draw: st.DrawFn) -> tuple[bool, bytes]:
    """Frames of a server or a client, most of them ordinary, some unusual and some wrong."""
    masked = draw(st.booleans())
    data = b""
    for _ in range(draw(st.integers(0, 12))):
        first = draw(st.one_of(*[ORDINARY] * 9, UNUSUAL))
        payload = closing(1000) if first == CLOSE else ("é" * draw(LENGTHS)).encode()
        if first in (PING, PONG):
            payload = payload[:126]  # one byte more than is allowed
        end = draw(st.sampled_from((None,) * 20 + (-1,)))  # perhaps cuts a character in half
        wrong_mask = draw(st.sampled_from((False,) * 20 + (True,)))
        data += masked_frame(first, payload[:end], masked=masked != wrong_mask)
    return masked, data + draw(st.sampled_from(CUT_OFF))


class Reader:
    """Parses frames with the `websockets` library."""

    def __init__(self, *, masked: bool) -> None:
        self._protocol = Protocol(Side.SERVER if masked else Side.CLIENT, state=OPEN)

    def read(self, data: bytes) -> list[Read]:
        """Return the frames that are complete with this data."""
        self._protocol.receive_data(data)
        frames = [event for event in self._protocol.events_received() if isinstance(event, Frame)]
        return [(frame.opcode, frame.fin, bytes(frame.data)) for frame in frames]

    @property
    def mistake(self) -> str:
        """The error that the library found, as text."""
        return repr(self._protocol.parser_exc)


@given(streams(), CUTS)
def test_any_frames_read_as_they_would_without_the_tap(
    stream: tuple[bool, bytes], cuts: list[int]
) -> None:
    """Texts and passing frames together are what a reader without the tap gets, errors too."""
    masked, data = stream
    without, behind = Reader(masked=masked), Reader(masked=masked)
    tap = TextTap(masked=masked, max_bytes=MAX_BYTES)
    seen: list[Read] = []
    for piece in chop(data, cuts):
        passing = tap.pick(piece)
        while passing or tap.texts:
            seen += [(Opcode.TEXT, True, text.encode()) for text in tap.texts]
            tap.texts.clear()
            seen += behind.read(passing)
            passing = tap.pick(b"")
    assert seen == without.read(data)
    assert behind.mistake == without.mistake


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535])
def test_ordinary_texts_are_taken_one_by_one(size: int) -> None:
    """Ordinary texts are taken, and no byte of them passes, however they are cut into reads."""
    texts = [chr(ord("a") + n) * size for n in range(3)]
    data = b"".join(masked_frame(TEXT, text.encode(), masked=True) for text in texts)
    tap = TextTap(masked=True, max_bytes=65_535)
    for piece in chop(data, [1, 2, 3, 5, 7, 8, 9, size + 4, size + 9, 2 * size]):
        assert tap.pick(piece) == b""
    assert list(tap.texts) == texts
    assert not tap.shut


@pytest.mark.parametrize(
    "unusual",
    [
        frame(0x01, b"the first fragment"),
        frame(BINARY, b"bytes"),
        frame(CLOSE, closing(1000)),
        frame(0xC1, b"reserved bit"),
        frame(0x83, b"reserved opcode"),
        frame(TEXT, b"\xff"),
        frame(TEXT, b"no mask", masked=False),
        frame(TEXT, bytes(65_536)),
        frame(PING, bytes(126)),
        frame(TEXT, bytes(2_001))[:4],
        b"\x81\xfe\x00\x05" + bytes(4) + b"12345",
    ],
)
def test_an_unusual_frame_shuts_the_tap(unusual: bytes) -> None:
    """An unusual frame passes with all bytes after it, so that no message overtakes another."""
    limit = 2_000 if len(unusual) == 4 else 100_000
    tap = TextTap(masked=True, max_bytes=limit)
    text = frame(TEXT, b"text")
    assert tap.pick(text + unusual + text) == unusual + text
    assert tap.shut
    assert tap.pick(text) == text
    assert list(tap.texts) == ["text"]


# --- through the whole stack ---


@st.composite
def conversations(draw: st.DrawFn) -> tuple[bytes, list[str | bytes], int]:
    """The bytes that a client of `websockets` sends, its messages, and the number of pings."""
    client = Protocol(Side.CLIENT, state=OPEN)
    messages: list[str | bytes] = []
    pings = 0
    for _ in range(draw(st.integers(0, 40))):
        kind = draw(st.sampled_from(("text",) * 8 + ("ping",) * 3 + ("binary", "fragments")))
        content = ("é" * draw(LENGTHS)).encode()
        match kind:
            case "text":
                client.send_text(content)
            case "binary":
                client.send_binary(content)
            case "fragments":
                parts = chop(content, draw(st.lists(st.integers(0, 1000), max_size=3)))
                client.send_text(b"", fin=False)
                for part in parts:
                    client.send_continuation(part, fin=False)
                    client.send_ping(b"between")
                    pings += 1
                client.send_continuation(b"", fin=True)
            case _:
                client.send_ping(b"are you there")
                pings += 1
                continue
        messages.append(content if kind == "binary" else content.decode())
    return b"".join(client.data_to_send()), messages, pings


@settings(deadline=None)
@given(conversations(), CUTS)
def test_messages_of_all_kinds_arrive_in_order(
    conversation: tuple[bytes, list[str | bytes], int], cuts: list[int]
) -> None:
    """Messages of all kinds and cuts arrive in order, and pings among them are answered."""
    data, messages, pings = conversation

    async def main() -> None:
        near, far = memory_streams()
        peer = RawPeer(far)
        answered = trio.Event()

        async def speak() -> None:
            await peer.shake_hands()
            for piece in chop(data, cuts):
                await far.send_all(piece)
                await wait_all_tasks_blocked()
            for _ in range(pings):
                assert (await peer.receive())[0] == PONG
            answered.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(speak)
            async with answer(near, max_bytes=MAX_BYTES, peer="client") as server:
                received = [await server.receive() for _ in messages]
                assert received == messages
                read_on(server)  # pings may follow the last message
                await answered.wait()

    trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.real_tcp
async def test_another_implementation_sends_all_sorts() -> None:
    """Messages of all sizes from the `websockets` library arrive in order, whole and fragmented."""
    chance = random.Random(3)
    sizes = (0, 125, 126, 65_535, 65_536, 70_000)
    texts = [
        "x" * (chance.choice(sizes) if chance.random() < 0.01 else chance.randrange(700))
        for _ in range(3_000)
    ]
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]

    def speak() -> None:
        with sync_connect(f"ws://127.0.0.1:{port}/arcp") as client:
            pongs = [client.ping()]
            for n, text in enumerate(texts):
                if n % 100 == 50:
                    pongs.append(client.ping())
                if n < 2_000 or n % 3 == 0:  # so that the next message reaches the tap
                    client.send(text)
                elif n % 3 == 1:
                    client.send([text[: len(text) // 2], text[len(text) // 2 :]])
                else:
                    client.send(text.encode())
            with pytest.raises(ConnectionClosed):
                client.recv(timeout=60)
            assert all(pong.is_set() for pong in pongs)

    with trio.fail_after(30):
        async with listener, trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, speak)
            stream = await listener.accept()
            async with answer(stream, max_bytes=MAX_BYTES, peer="client") as server:
                for n, text in enumerate(texts):
                    is_text = n < 2_000 or n % 3 < 2
                    assert await server.receive() == (text if is_text else text.encode())
                await server.close()


async def test_a_ping_before_a_goodbye_is_answered_first() -> None:
    """A pong is sent before the message after its ping is received."""
    along = frame(TEXT, b"hello") + frame(PING, b"?") + frame(TEXT, b"goodbye")
    async with open_raw(along=along) as (server, peer), trio.open_nursery() as nursery:
        assert await server.receive() == "hello"
        assert await server.receive() == "goodbye"
        nursery.start_soon(server.close)
        assert await peer.receive() == (PONG, b"?")
        assert await peer.receive() == (CLOSE, closing(1000))
        await peer.send(CLOSE, closing(1000))


async def test_a_peer_whose_messages_are_not_received_has_to_wait() -> None:
    """Reading stops one read after the queue is full, and no message is lost."""
    text = b"x" * 1_000
    sent = 0
    async with open_raw() as (server, peer), trio.open_nursery() as nursery:

        @nursery.start_soon
        async def speak() -> None:
            nonlocal sent
            for n in range(1_000):
                await peer.send(TEXT, b"%03d" % n + text)
                sent += 1

        await wait_all_tasks_blocked()
        assert sent * len(text) < 3 * PIPE_BYTES + QUEUED_MESSAGES * len(text)
        for n in range(1_000):
            assert (await server.receive())[:3] == f"{n:03}"


async def test_closing_does_not_wait_for_queued_messages(autojump_clock: MockClock) -> None:
    """Closing sees the peer's Close after more messages than the queue holds."""
    async with open_raw() as (server, peer), trio.open_nursery() as nursery:

        @nursery.start_soon
        async def speak() -> None:
            for _ in range(20 * QUEUED_MESSAGES):
                await peer.send(TEXT, bytes(100))
            await peer.send(CLOSE, closing(1000))

        await wait_all_tasks_blocked()
        nursery.start_soon(server.close)
        assert await peer.receive() == (CLOSE, closing(1000))
    assert trio.current_time() == 0
