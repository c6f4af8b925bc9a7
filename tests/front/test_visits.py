"""Connections that come and go over real sockets, and leave nothing open in the process."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio import JobContext, Runtime, StaticTokens, serve
from arcp_trio.store.interface import Store
from arcp_trio.testing.peer import TEST_TOKEN, Peer
from arcp_trio.testing.recorder import WireRecorder
from arcp_trio.transport import connect
from tests.footprint import descriptors, tasks
from tests.store.engines import EACH_ENGINE, Engine
from tests.transport.peers import request

pytestmark = pytest.mark.real_tcp

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST
AT_ONCE = 5
"""How many visits of each kind run at the same time."""
STORE_THREADS = 8
"""The threads of a store: reader, writer and checkpoints, and one that is about to end."""
PATIENCE_SECONDS = 60.0


async def silent(port: int) -> None:
    """Connect and close."""
    await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()


async def half_said(port: int) -> None:
    """Close in the middle of the opening handshake."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request()[:40])


async def in_session(port: int, *, job: bool, waits: bool, goes: str) -> None:
    """Open a session, perhaps submit a job, perhaps wait for its end, and leave."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with connect(stream, max_bytes=100_000) as transport:
        peer = Peer(transport, stream, WireRecorder())
        await peer.hello()
        if job:
            await peer.send("job.submit", {"agent": "quick"})
        if waits:
            await peer.expect("job.result")
        if goes == "by reset":
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        await (peer.close() if goes == "politely" else peer.drop())


VISITS: list[Callable[[int], Awaitable[None]]] = [
    silent,
    half_said,
    *(
        partial(in_session, job=job, waits=waits, goes=goes)
        for goes in ("politely", "by reset", "without a word")
        for job, waits in ((False, False), (True, False), (True, True))
    ),
]


async def come_and_go(store: Store, rounds: int) -> None:
    """Run all kinds of visits, `rounds` times; then the process has what it had before."""
    runtime = Runtime(auth=StaticTokens({TEST_TOKEN: "alice"}), store=store)

    @runtime.agent("quick")
    async def quick(job: JobContext) -> None:
        await job.log("here")

    threads_before = threading.active_count()
    async with runtime, trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(serve, runtime, port=0))
        port = listeners[0].socket.getsockname()[1]
        await wait_all_tasks_blocked()
        files_before, tasks_before = descriptors(), tasks()
        for _ in range(rounds):
            async with trio.open_nursery() as visitors:
                for visit in VISITS * AT_ONCE:
                    visitors.start_soon(visit, port)
        with trio.move_on_after(PATIENCE_SECONDS):
            while descriptors() > files_before or tasks() > tasks_before:
                await wait_all_tasks_blocked(0.02)
        assert descriptors() <= files_before  # a connection to a database may have been cut off
        assert tasks() == tasks_before
        assert threading.active_count() <= threads_before + STORE_THREADS
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("engine", EACH_ENGINE)
async def test_hundreds_of_connections_leave_nothing_open(engine: Engine) -> None:
    """However visits end, file descriptors, tasks and threads are as many as before."""
    with trio.fail_after(60), engine.make() as store:
        await come_and_go(store, rounds=5)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", EACH_ENGINE)
async def test_ten_thousand_connections_leave_nothing_open(engine: Engine) -> None:
    """Ten thousand visits leave as little open as a few hundred do."""
    with trio.fail_after(800), engine.make() as store:
        await come_and_go(store, rounds=10_000 // (AT_ONCE * len(VISITS)))
