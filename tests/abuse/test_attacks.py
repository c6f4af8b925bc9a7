"""Misbehaving connections, many times over, beside a session that streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from arcp_trio import Limits
from arcp_trio.wire.json import JsonObject
from tests.abuse.support import (
    agents,
    expect_text,
    hands_on,
    hello,
    hello_payload,
    is_served,
    peer_of,
    says,
    serving,
    witness_of,
)
from tests.footprint import footprint, settles
from tests.stage import make_runtime
from tests.transport.peers import BINARY, CLOSE, PING, PONG, TEXT, closing, frame, request

pytestmark = pytest.mark.real_tcp

TIMES = 200
AT_ONCE = 20

BAD_CODES = (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)
TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(501)
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
TOO_BIG = frame(TEXT, bytes(5_000_000))[:14]
CHATTY = says("job.submit", {"agent": "chatty", "input": 50})
RESUME: JsonObject = {"session_id": "sess_x", "resume_token": "rt_x", "last_event_seq": 0}

# The pieces that the nth attacker sends.
PIECES: dict[str, Callable[[int], list[bytes]]] = {
    "nothing": lambda _: [],
    "garbage": lambda _: [b"\x00\xff\r\n\r\n this is not HTTP"],
    "TLS": lambda _: [TLS_HELLO],
    "HTTP/2": lambda _: [HTTP_2],
    "plain HTTP": lambda _: [b"POST /arcp HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{}"],
    "part of a request": lambda n: [request()[: n % len(request())]],
    "a request and no more": lambda _: [request()],
    "requests on end": lambda _: [request() * 5],
    "part of a hello": lambda n: [request(), hello()[: n % len(hello())]],
    "a hello and gone": lambda _: [request() + hello()],
    "a hello of nobody": lambda _: [request(), hello("guessed") * 2],
    "a binary hello": lambda _: [request(), frame(BINARY, b"{}")],
    "a ping before the hello": lambda _: [request(), says("session.ping", {"nonce": "n"})],
    "garbage for a hello": lambda n: [request(), bytes((n % 256,)) * 200],
    "garbage in a session": lambda n: [request() + hello(), bytes((n % 256,)) * 200],
    "a made-up resume": lambda _: [request() + hello(), says("session.resume", RESUME) * 3],
    "a Close before the hello": lambda n: [request(), bad_close(n) + hello()],
    "a Close with a bad code": lambda n: [request() + hello(), bad_close(n) + frame(PING)],
    "a Close of one byte": lambda _: [request() + hello(), frame(CLOSE, b"\x03")],
    "a Close that is no text": lambda _: [request() + hello(), frame(CLOSE, b"\x03\xe8\xff")],
    "more after the Close": lambda _: [request() + hello(), farewell() * 2 + frame(PING) + hello()],
    "too much at once": lambda _: [request() + hello(), TOO_BIG],
    "too much before the hello": lambda _: [request(), TOO_BIG],
    "no mask": lambda _: [request() + hello(), frame(TEXT, b"{}", masked=False)],
    "unfinished business": lambda n: [request() + hello(), frame(0x01, b"{") + frame(0x00) * n],
    "pongs unasked": lambda _: [request() + hello(), frame(PONG, b"?") * 50],
    "pings unheard": lambda _: [request() + hello(), frame(PING, b"?") * 50],
    "a stream unread": lambda _: [request() + hello(), CHATTY],
    "frames of nothing": lambda _: [request() + hello(), frame(TEXT) * 50],
    "pings after goodbye": lambda _: [
        request() + hello(),
        says("session.close") + frame(PING) * 10 + says("session.ping") + farewell(),
    ],
}


def farewell() -> bytes:
    """Return a client's Close frame."""
    return frame(CLOSE, closing(1000))


def bad_close(n: int) -> bytes:
    """Return a Close frame with a payload that is not allowed."""
    return frame(CLOSE, closing(BAD_CODES[n % len(BAD_CODES)]))


async def withstands(attack: Callable[[int, int], Awaitable[None]]) -> None:
    """Check that the witness misses nothing, newcomers are served and nothing stays behind."""
    with trio.fail_after(100):
        # What the witness has not read is bounded, so that reading on takes no long time.
        runtime = make_runtime(
            agents, limits=Limits(jobs_per_principal=2 * TIMES, journal_bytes=50_000)
        )
        async with serving(runtime) as port:
            before = await footprint()
            async with witness_of(port) as witness:
                for n in range(0, TIMES, AT_ONCE):
                    async with trio.open_nursery() as attackers:
                        for m in range(n, n + AT_ONCE):
                            attackers.start_soon(attack, port, m)
                    await witness.hears_more(5)
                async with peer_of(port) as newcomer:
                    await newcomer.hello()
                    await is_served(newcomer)
            await settles(before)


@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
async def test_nobody_notices(pieces: Callable[[int], list[bytes]]) -> None:
    """200 connections that misbehave in one way, ended by RST or FIN, affect no other."""

    async def attack(port: int, n: int) -> None:
        async with hands_on(port, reset=n % 2 == 0) as peer:
            for piece in pieces(n):
                await peer.stream.send_all(piece)
                if n % 3 == 0:
                    with trio.move_on_after(0.001):
                        await peer.stream.receive_some(65536)

    await withstands(attack)


async def test_pings_behind_the_servers_close() -> None:
    """Frames that a client sends after the server's Close are ignored."""

    async def attack(port: int, n: int) -> None:
        async with hands_on(port, reset=n % 2 == 0) as peer:
            await peer.shake_hands(along=hello())
            await expect_text(peer, "session.welcome")
            await peer.stream.send_all(says("session.close"))
            await expect_text(peer, "session.closed")
            assert await peer.receive() == (CLOSE, closing(1000, "closed"))
            for _ in range(3):
                await peer.send(PING, b"are you there?")
                await peer.stream.send_all(says("session.ping", {"nonce": "and you?"}))
            if n % 3 == 0:
                await peer.stream.send_all(farewell())
                assert await peer.read_to_end() == b""

    await withstands(attack)


async def test_gone_at_a_frame_of_the_servers() -> None:
    """Clients that disconnect in the middle of the server's frames affect no other."""

    async def attack(port: int, n: int) -> None:
        async with hands_on(port, reset=n % 2 == 0) as peer:
            await peer.stream.send_all(request() + hello() + CHATTY)
            left = (n * 37) % 6_000
            while left > 0:
                left -= len(await peer.stream.receive_some(left))

    await withstands(attack)


async def test_sessions_that_are_taken_over_and_over() -> None:
    """A session that a crowd resumes at once has one connection, and the others are told."""

    async def attack(port: int, n: int) -> None:
        async with hands_on(port, reset=n % 2 == 0) as peer:
            await peer.shake_hands(along=hello())
            welcome = await expect_text(peer, "session.welcome")
            resume = {
                "session_id": welcome["session_id"],
                "resume_token": welcome["payload"]["resume_token"],
                "last_event_seq": 0,
            }
            again = says("session.hello", hello_payload() | {"resume": resume})
            async with trio.open_nursery() as rivals:
                for _ in range(3):
                    rivals.start_soon(say_and_go, port, request() + again, n)

    await withstands(attack)


async def say_and_go(port: int, words: bytes, n: int) -> None:
    """Send this, perhaps read a part of the answer, and disconnect."""
    async with hands_on(port, reset=n % 2 == 1) as peer:
        await peer.stream.send_all(words)
        if n % 3:
            await peer.stream.receive_some(n)
