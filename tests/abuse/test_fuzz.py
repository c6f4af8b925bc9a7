"""Thousands of broken messages and broken byte streams at the real server."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest
import trio

from arcp_trio import Limits, ResumeWindowExpired, Runtime
from arcp_trio.testing.peer import Peer
from arcp_trio.testing.recorder import WireRecorder
from arcp_trio.transport import TransportClosed
from arcp_trio.wire.json import JsonObject
from tests.abuse.mutator import Mutator
from tests.abuse.support import (
    agents,
    hands_on,
    hello,
    is_served,
    peer_of,
    says,
    serving,
    witness_of,
)
from tests.footprint import footprint, settles
from tests.stage import make_runtime
from tests.transport.peers import BINARY, CLOSE, PING, closing, frame, request

pytestmark = pytest.mark.real_tcp

FRAMES = 5_000
STREAMS = 500
PROBE = 50
"""A good submit after this many messages shows that the session lives."""


def roomy(frames: int) -> Runtime:
    """Return a runtime that accepts this many malformed frames, and the jobs that some become."""
    return make_runtime(
        agents, limits=Limits(malformed_frames=2 * frames, jobs_per_principal=100_000, jobs=100_000)
    )


class Fuzzer:
    """A session that sends mutated messages, and resumes whenever its connection is closed."""

    def __init__(self, port: int, seed: int) -> None:
        self.connections = 0
        self.left = FRAMES
        self._port = port
        self._mutator = Mutator(seed)
        self._recorder = WireRecorder()
        self._resume: JsonObject | None = None

    async def run(self) -> None:
        """Send everything, and be served before, in between and after."""
        while self.left:
            async with peer_of(self._port, self._recorder) as peer:
                self.connections += 1
                try:
                    await peer.hello(resume=self._resume)
                except ResumeWindowExpired:  # it has acknowledged what it did not read
                    self._resume = None
                    continue
                with suppress(TransportClosed):
                    await self._say(peer)
                self._resume = peer.resume_from()

    async def _say(self, peer: Peer) -> None:
        await is_served(peer, "before")
        while self.left:
            await peer.transport.send([self._mutator.message()])
            self.left -= 1
            if self.left % PROBE == 0:
                await is_served(peer, self.left)


@pytest.mark.spec("12-5", "5-2")
async def test_a_session_survives_broken_messages() -> None:
    """A session that sends broken messages is served again, and loses nothing."""
    with trio.fail_after(100):
        async with serving(roomy(FRAMES)) as port:
            before = await footprint()
            fuzzer = Fuzzer(port, seed=1)
            await fuzzer.run()
            assert fuzzer.connections > 100
            await settles(before)


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_sessions_survive_broken_messages_for_long() -> None:
    """The same holds for one seed after another, for minutes."""
    with trio.move_on_after(600):
        async with serving(roomy(FRAMES)) as port:
            for seed in itertools.count(2):
                await Fuzzer(port, seed).run()


def words() -> bytes:
    """Return all kinds of frames as a good client sends them."""
    return b"".join(
        (
            hello(),
            frame(PING, b"payload"),
            says("session.ping", {"nonce": "n"}),
            frame(0x01, b'{"arcp": "1.1", "id": "x", '),
            frame(0x00),
            frame(PING),
            frame(0x80, b'"type": "session.ping", "payload": {"nonce": "m"}}'),
            frame(BINARY, b"binary"),
            says("job.submit", {"agent": "echo", "input": "x" * 200}),
            says("session.close"),
            frame(CLOSE, closing(1000, "bye")),
        )
    )


async def test_nobody_notices_broken_streams() -> None:
    """500 connections with broken bytes, every fifth in its request, affect no other."""
    mutator = Mutator(1)
    runtime = make_runtime(
        agents, limits=Limits(journal_bytes=50_000, parked_sessions_per_principal=10)
    )

    async def break_in(port: int, n: int) -> None:
        async with hands_on(port, reset=n % 2 == 0) as peer:
            if n % 5:
                await peer.shake_hands(along=mutator.stream(words()))
            else:
                await peer.stream.send_all(mutator.stream(request()) + words())
            if n % 3 == 0:
                assert isinstance(peer.stream, trio.SocketStream)
                await peer.stream.send_eof()
                await peer.read_to_end()

    with trio.fail_after(100):
        async with serving(runtime) as port:
            before = await footprint()
            async with witness_of(port) as witness:
                for n in range(0, STREAMS, 20):
                    async with trio.open_nursery() as nursery:
                        for m in range(n, n + 20):
                            nursery.start_soon(break_in, port, m)
                    await witness.hears_more(5)
            await settles(before)
