"""WebSocket framing at the real server: what RFC 6455 allows passes, and the rest is refused."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from arcp_trio import Limits
from arcp_trio.transport import memory_streams
from tests.abuse.support import agents, expect_text, raw_session, serving
from tests.protocol.support import text_of
from tests.stage import make_runtime
from tests.transport.peers import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    RawPeer,
    answer,
    closing,
    frame,
    request,
)

pytestmark = pytest.mark.real_tcp

LIMIT = 100_000
FIRST, MIDDLE, LAST = 0x01, 0x00, 0x80
"""First bytes of the fragments of a text message."""

VALID_CODES = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
INVALID_CODES = (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535)


@asynccontextmanager
async def session() -> AsyncGenerator[RawPeer]:
    """Provide a session with frames made by hand, and a runtime of its own."""
    with trio.fail_after(60):
        # A frame without an end is waited for as long as a farewell.
        runtime = make_runtime(agents, limits=Limits(frame_bytes_in=LIMIT, close_seconds=1))
        async with serving(runtime) as port, raw_session(port) as peer:
            yield peer


def ping(nonce: str = "n") -> bytes:
    """Return a message that is answered with its nonce."""
    return text_of("session.ping", {"nonce": nonce}).encode()


async def is_answered(peer: RawPeer, nonce: str = "n") -> None:
    """Check that the message arrived as it was sent."""
    assert (await expect_text(peer, "session.pong"))["payload"]["ping_nonce"] == nonce


TOO_BIG = 1009


async def is_closed(peer: RawPeer, code: int) -> None:
    """Check that the next frame is a Close, and the end comes after it."""
    first, payload = await peer.receive()
    assert (first, payload[:2]) == (CLOSE, closing(code))
    await peer.stream.send_all(frame(CLOSE, payload))
    assert await peer.read_to_end() == b""


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("chopped", [True, False])
@pytest.mark.spec("1.0/5.2-1")
async def test_a_message_in_fragments(size: int, *, chopped: bool) -> None:
    """A message may come in fragments, empty ones and control frames between them included."""
    nonce = "é💶 " * 30
    data = ping(nonce)
    async with session() as peer:
        sent = frame(FIRST)
        pings = 0
        for at in range(0, len(data), size):
            sent += frame(MIDDLE, data[at : at + size]) + frame(PONG, b"unasked")
            if at // size % 50 == 0:
                sent += frame(MIDDLE) + frame(PING, b"%d" % pings)
                pings += 1
        sent += frame(LAST)
        for at in range(0, len(sent), step := 3 if chopped else len(sent)):
            await peer.stream.send_all(sent[at : at + step])
        for n in range(pings):
            assert await peer.receive() == (PONG, b"%d" % n)
        await is_answered(peer, nonce)
        await peer.send(TEXT, ping("whole"))
        await is_answered(peer, "whole")


@pytest.mark.parametrize("size", [0, 1, 125])
async def test_pings_of_every_size_are_answered(size: int) -> None:
    """Pings of every size are answered with their payload, in order with messages."""
    async with session() as peer:
        payload = bytes(range(256))[-size:] if size else b""
        await peer.stream.send_all(frame(PING, payload) + frame(TEXT, ping()) + frame(PONG))
        assert await peer.receive() == (PONG, payload)
        await is_answered(peer)


@pytest.mark.parametrize("code", VALID_CODES)
async def test_a_close_with_a_code(code: int) -> None:
    """Every code that a client may use is answered in kind."""
    async with session() as peer:
        await peer.send(CLOSE, closing(code, "é" * 61))
        first, payload = await peer.receive()
        assert (first, payload[:2]) == (CLOSE, closing(code))
        assert await peer.read_to_end() == b""


async def test_a_close_without_a_code() -> None:
    """A Close without a code is answered, too."""
    async with session() as peer:
        await peer.send(CLOSE)
        first, payload = await peer.receive()
        assert first == CLOSE
        assert payload in (b"", closing(1000))
        assert await peer.read_to_end() == b""


BAD: dict[str, tuple[bytes, int]] = {
    **{f"Close {code}": (frame(CLOSE, closing(code)), 1002) for code in INVALID_CODES},
    "Close of one byte": (frame(CLOSE, b"\x03"), 1002),
    "Close of 126 bytes": (frame(CLOSE, closing(1000) + bytes(124)), 1002),
    "Close that is no text": (frame(CLOSE, closing(1000) + b"\xff"), 1007),
    "Close in fragments": (frame(0x08, closing(1000)), 1002),
    "ping in fragments": (frame(0x09), 1002),
    "pong in fragments": (frame(0x0A), 1002),
    "ping of 126 bytes": (frame(PING, bytes(126)), 1002),
    "pong of 126 bytes": (frame(PONG, bytes(126)), 1002),
    "text without a mask": (frame(TEXT, ping(), masked=False), 1002),
    "ping without a mask": (frame(PING, masked=False), 1002),
    "Close without a mask": (frame(CLOSE, masked=False), 1002),
    **{f"RSV {bit:03b}": (frame(TEXT | bit << 4, ping()), 1002) for bit in range(1, 8)},
    **{f"ping with RSV {bit:03b}": (frame(PING | bit << 4), 1002) for bit in (1, 2, 4)},
    **{f"opcode {opcode}": (frame(0x80 | opcode), 1002) for opcode in (3, 4, 5, 6, 7)},
    **{f"opcode {opcode}": (frame(0x80 | opcode), 1002) for opcode in range(11, 16)},
    "nothing to go on with": (frame(LAST, ping()), 1002),
    "nothing to go on with yet": (frame(MIDDLE, ping()), 1002),
    "text in a text": (frame(FIRST, b"{") + frame(TEXT, ping()), 1002),
    "binary in a text": (frame(FIRST, b"{") + frame(BINARY, ping()), 1002),
    "length of 16 bits for little": (b"\x81\xfe\x00\x05" + bytes(4) + b"{   }", 1002),
    "length of 64 bits for little": (b"\x81\xff" + bytes(7) + b"\x05" + bytes(4) + b"{   }", 1002),
    "length of 64 bits and a sign": (b"\x81\xff\x80" + bytes(7) + bytes(4), 1009),
    "no UTF-8": (frame(TEXT, b"\xff"), 1007),
    "half a character": (frame(TEXT, "é".encode()[:1]), 1007),
    "a surrogate": (frame(TEXT, b"\xed\xa0\x80"), 1007),
    "an overlong slash": (frame(TEXT, b"\xc0\xaf"), 1007),
    "beyond Unicode": (frame(TEXT, b"\xf4\x90\x80\x80"), 1007),
    "no UTF-8 in the first fragment": (frame(FIRST, b"ok\xff"), 1007),
    "no UTF-8 across fragments": (frame(FIRST, b"\xf0\x9f") + frame(MIDDLE, b"a"), 1007),
    "half a character at the end": (frame(FIRST, b"\xf0\x9f") + frame(LAST), 1007),
    "one byte over": (frame(TEXT, bytes(LIMIT + 1)), 1009),
    "one byte over by its header": (frame(TEXT, bytes(LIMIT + 1))[:14], 1009),
    "one byte over in two": (frame(FIRST, bytes(LIMIT)) + frame(MIDDLE, bytes(1)), 1009),
    "one byte over in binary": (frame(BINARY, bytes(LIMIT + 1)), 1009),
    "far too much": (b"\x81\xff\x7f" + b"\xff" * 7 + bytes(4), 1009),
}


@pytest.mark.parametrize(("bad", "code"), BAD.values(), ids=BAD)
@pytest.mark.spec("1.0/5.2-1")
async def test_what_may_not_be_is_told(bad: bytes, code: int) -> None:
    """A frame that is not allowed gets a Close with the right code, and then the end."""
    async with session() as peer:
        await peer.send(TEXT, ping())
        await is_answered(peer)
        await peer.stream.send_all(bad)
        if code == TOO_BIG:
            refusal = await expect_text(peer, "session.error")
            assert refusal["payload"]["details"] == {"limit": "frame_bytes_in", "max": LIMIT}
        await is_closed(peer, code)


async def test_a_message_of_exactly_the_limit() -> None:
    """A message of exactly the limit passes, in any number of fragments."""
    async with session() as peer:
        size = LIMIT - len(text_of("job.submit", {"agent": "echo", "input": ""}))
        data = text_of("job.submit", {"agent": "echo", "input": "x" * size}).encode()
        assert len(data) == LIMIT
        for pieces in ([data], [data[:1], data[1:]], [b"", data[:-1], data[-1:], b""]):
            *first, last = pieces
            for n, piece in enumerate(first):
                await peer.send(MIDDLE if n else FIRST, piece)
            await peer.send(LAST if first else TEXT, last)
            await expect_text(peer, "job.accepted")
            result = await expect_text(peer, "job.result")
            assert result["payload"]["result"] == "x" * size


async def test_a_binary_message_is_answered() -> None:
    """A binary message is refused, and the session goes on."""
    async with session() as peer:
        await peer.send(BINARY, ping())
        await peer.send(0x02, ping()[:5])
        await peer.send(LAST, ping()[5:])
        for _ in range(2):
            error = (await expect_text(peer, "session.error"))["payload"]
            assert error["code"] == "INVALID_REQUEST"
        await peer.send(TEXT, ping())
        await is_answered(peer)


async def test_many_fragments_take_no_memory_beyond_their_message() -> None:
    """A megabyte in 256 fragments takes less than three megabytes."""
    mib = 1024 * 1024
    part = b"x" * (mib // 256)
    near, far = memory_streams()
    data = frame(FIRST, part) + frame(MIDDLE, part) * 254 + frame(LAST, part)
    await far.send_all(request())
    with trio.fail_after(60):
        async with (
            answer(near, max_bytes=mib) as server,
            trio.open_nursery() as nursery,
        ):
            tracemalloc.start()
            try:
                nursery.start_soon(far.send_all, data)
                message = await server.receive()
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert len(message) == mib
    assert peak < 3 * mib
