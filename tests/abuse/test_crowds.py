"""Thousands of visits over real sockets leave nothing behind once every window is over."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Limits
from arcp_trio.runtime.connection import handshake
from arcp_trio.store.interface import Store
from arcp_trio.transport import connect
from arcp_trio.wire.json import JsonObject
from tests.abuse.support import MAX_BYTES, agents, hands_on, hello, hello_payload, says, serving
from tests.footprint import blocks, footprint, settles
from tests.inside import held
from tests.protocol.support import text_of
from tests.stage import make_runtime
from tests.store.engines import EACH_LOCAL_ENGINE, Engine
from tests.transport.peers import CLOSE, PING, closing, frame, request

pytestmark = pytest.mark.real_tcp

RETENTION_SECONDS = 100
ROUNDS = 4


@pytest.fixture(autouse=True)
def _few_records(caplog: pytest.LogCaptureFixture) -> None:
    """Log little: pytest keeps every record until the end of the test."""
    caplog.set_level(logging.ERROR, "arcp_trio")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer every wrong token at once: the clock stands still during a round."""
    monkeypatch.setattr(handshake, "PAUSE_SECONDS", 0.0)


Round = Callable[[int, int], Awaitable[None]]
"""A coroutine function that makes the visits of the nth round at a port."""


async def leaves_nothing(engine: Engine, clock: MockClock, come_and_go: Round, size: int) -> None:
    """Run rounds of visits; check after each that sessions, jobs, tasks and files are gone.

    Memory that a visit leaks is leaked in every round, unlike what threads and caches take now and
    then, so the round with the least growth counts.
    """
    with engine.make() as store:
        limits = Limits(
            resume_window_seconds=RETENTION_SECONDS,
            finished_job_seconds=RETENTION_SECONDS,
            idempotency_seconds=2 * RETENTION_SECONDS,
            parked_sessions_per_principal=10_000,
            jobs_per_principal=10_000,
            jobs=10_000,
        )
        runtime = make_runtime(agents, store=store, limits=limits)
        in_use: list[int] = []
        async with serving(runtime) as port:
            before = await footprint()
            for n in range(ROUNDS):
                await come_and_go(port, n)
                await settles(before)
                await pass_by(store, clock)
                assert held(runtime) == {}
                assert await engine.left(store) == {}
                assert await footprint() == before
                in_use.append(blocks())
    assert min(more - less for less, more in pairwise(in_use)) < size // 2, in_use


async def pass_by(store: Store, clock: MockClock) -> None:
    """Let more time pass than anything is kept for, without traffic."""
    for _ in range(8):  # step by step: this clock stands still while threads work
        await store.flushed()
        await wait_all_tasks_blocked(0.01)
        clock.jump(RETENTION_SECONDS / 2)
    await store.flushed()


# -- connections

WAYS: list[list[bytes]] = [
    [],
    [request()[:40]],
    [request()],
    [request() + hello()[:-5]],
    [request() + hello()],
    [request() + hello("nobody")],
    [request() + hello(), says("job.submit", {"agent": "echo", "idempotency_key": "k"})],
    [request() + hello(), says("job.submit", {"agent": "chatty", "input": 20}) + frame(PING)],
    [request() + hello() + says("session.close")],
    [request() + hello(), frame(CLOSE, closing(1000))],
]
"""The pieces that are sent before the connection is dropped."""


async def drop(port: int, n: int) -> None:
    """Connect, send some pieces, read some answers or none, and disconnect by RST or FIN."""
    async with hands_on(port, reset=n % 2 == 0) as peer:
        for piece in WAYS[n // 2 % len(WAYS)]:
            await peer.stream.send_all(piece)
            if n % 3 and piece.startswith(request()):
                await peer.read_head()


@pytest.mark.parametrize("engine", EACH_LOCAL_ENGINE)
async def test_a_thousand_connections_leave_nothing(engine: Engine, mock_clock: MockClock) -> None:
    """A thousand connections that are dropped at every stage leave nothing behind."""
    each = 1_000 // ROUNDS

    async def come_and_go(port: int, round_: int) -> None:
        for n in range(round_ * each, (round_ + 1) * each, 10):
            async with trio.open_nursery() as nursery:
                for m in range(n, n + 10):
                    nursery.start_soon(drop, port, m)

    await leaves_nothing(engine, mock_clock, come_and_go, each)


# -- jobs

CLIENTS = 10
AT_ONCE = 50


async def have_done(port: int, client: int, jobs: int) -> None:
    """Run this many short jobs, some with a key, some twice, and disconnect."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with connect(stream, max_bytes=MAX_BYTES) as transport:
        await transport.send([text_of("session.hello", hello_payload()).encode()])
        await transport.receive()
        for n in range(0, jobs, AT_ONCE):
            await transport.send([submit(client, m) for m in range(n, n + AT_ONCE)])
            left = AT_ONCE
            while left:
                left -= '"job.result"' in str(await transport.receive())


def submit(client: int, n: int) -> bytes:
    """Return the nth kind of submit."""
    payload: JsonObject = {"agent": "echo", "input": [client, n]}
    if n % 2:
        payload["idempotency_key"] = f"{client} {n}"
    return text_of("job.submit", payload).encode()


@pytest.mark.parametrize("engine", EACH_LOCAL_ENGINE)
async def test_ten_thousand_short_jobs_leave_nothing(engine: Engine, mock_clock: MockClock) -> None:
    """Ten thousand short jobs over ten connections at a time leave nothing behind."""
    each = 10_000 // ROUNDS

    async def come_and_go(port: int, _: int) -> None:
        async with trio.open_nursery() as nursery:
            for client in range(CLIENTS):
                nursery.start_soon(have_done, port, client, each // CLIENTS)

    await leaves_nothing(engine, mock_clock, come_and_go, each)
