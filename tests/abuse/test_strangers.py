"""How much memory a client can take before it is authenticated."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Limits, Runtime
from arcp_trio.front.serve import serve_stream
from arcp_trio.transport import memory_streams
from tests.abuse.support import agents, hands_on, hello, says, serving, witness_of
from tests.footprint import footprint, settles
from tests.stage import make_runtime
from tests.transport.peers import CLOSE, PING, PONG, TEXT, RawPeer, frame

FIRST = 64 * 1024
MIB = 1024 * 1024

BEGINNINGS = {
    "whole": frame(TEXT, b" " * (FIRST + 1)),
    "by its header": frame(TEXT, bytes(4 * MIB))[:14],
    "unfinished": frame(TEXT, b" " * 4 * MIB)[:-1],
    "in fragments": frame(0x01, b" " * FIRST) + frame(0x00, b" "),
}


@pytest.mark.real_tcp
@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS)
async def test_a_first_message_is_small(beginning: bytes) -> None:
    """A hundred clients with large first messages are refused, while others are served."""

    async def begin(port: int) -> None:
        async with hands_on(port, reset=False) as peer:
            await peer.shake_hands()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, peer, beginning)
                code = await close_code(peer)
                nursery.cancel_scope.cancel()
            assert code == 1009

    with trio.fail_after(60):
        async with serving(make_runtime(agents, limits=Limits(journal_bytes=50_000))) as port:
            before = await footprint()
            async with witness_of(port), trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(begin, port)
            await settles(before)


async def send(peer: RawPeer, data: bytes) -> None:
    """Send as much of this as is taken."""
    with suppress(trio.BrokenResourceError):
        await peer.stream.send_all(data)


async def close_code(peer: RawPeer) -> int:
    """Read up to the Close, and return its code."""
    while (received := await peer.receive())[0] != CLOSE:
        pass
    return int.from_bytes(received[1][:2], "big")


class SlowGate:
    """An authenticator that waits until its test lets everybody in."""

    def __init__(self) -> None:
        self.opens = trio.Event()

    async def __call__(self, token: str) -> str:
        """Wait, and return the token as the principal."""
        await self.opens.wait()
        return token


async def test_little_is_read_while_it_is_checked_who_it_is(autojump_clock: MockClock) -> None:
    """While a token is checked little is read, and all of it arrives after the welcome."""
    gate = SlowGate()
    limits = Limits(handshake_seconds=1_000, messages_per_second=1_000)
    near, far = memory_streams()
    peer, sent = RawPeer(far), 0

    async def push() -> None:
        nonlocal sent
        note = says("x-vendor.acme.note", {"text": "x" * 30_000})
        for n in range(500):
            await far.send_all(note + frame(PING, b"%d" % n))
            sent += len(note)
        await far.send_all(says("session.ping", {"nonce": "last"}))

    async with Runtime(auth=gate, limits=limits) as runtime, trio.open_nursery() as nursery:
        runtime.start_connection(lambda: serve_stream(runtime, near, "stranger"), "stranger")
        await peer.shake_hands(along=hello())
        nursery.start_soon(push)
        await wait_all_tasks_blocked()
        assert sent < 5 * FIRST
        gate.opens.set()
        pongs = 0
        while (received := await peer.receive())[0] == PONG or pongs < 500:
            pongs += received[0] == PONG
        assert b'"last"' in received[1]
