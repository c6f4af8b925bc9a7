"""How much memory a large streamed result takes, with a store on disk."""

from __future__ import annotations

import tracemalloc
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from arcp_trio import JobContext, Runtime, SqliteStore, StaticTokens
from arcp_trio.testing.frames import Frame, parse_frame
from arcp_trio.testing.pair import open_transport
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.transport import Transport

MIB = 1024 * 1024
RESULT_MIB = 120
MOST_MIB = 50
"""16 wait to be sent, 16 to be read by the client in this process; the rest is small."""

HELLO = {
    "client": {"name": "frugal", "version": "1"},
    "auth": {"scheme": "bearer", "token": TEST_TOKEN},
    "capabilities": {"encodings": ["json"], "features": ["result_chunk"]},
}


async def send(transport: Transport, kind: str, payload: Frame) -> None:
    """Send a request by a bare transport."""
    frame = {"arcp": "1.1", "id": kind, "type": kind, "payload": payload}
    await transport.send([msgspec.json.encode(frame)])


@contextmanager
def peak_below(most_mib: float) -> Generator[None]:
    """Assert that Python allocates at most this much in the block."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most_mib * MIB


async def stream(
    folder: Path,
    pause: Callable[[SqliteStore], Awaitable[None]],
    read: Callable[[Transport, trio.Event], Awaitable[None]],
) -> None:
    """Have an agent stream with this pause between chunks, to a client that reads in this way."""
    store = SqliteStore(folder / "arcp.db", synchronous="OFF")
    runtime = Runtime(auth=StaticTokens({TEST_TOKEN: "tester"}), store=store)
    written = trio.Event()

    @runtime.agent("act")
    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            for _ in range(RESULT_MIB * 4):
                await out.write("x" * (MIB // 4))
                await pause(store)
        written.set()

    with trio.fail_after(60):
        async with runtime, open_transport(runtime) as (transport, _):
            await send(transport, "session.hello", HELLO)
            assert parse_frame(await transport.receive())["type"] == "session.welcome"
            await send(transport, "job.submit", {"agent": "act"})
            with peak_below(MOST_MIB):
                await read(transport, written)


async def to_the_end(transport: Transport, _written: trio.Event) -> None:
    """Read everything, and keep nothing."""
    frame = ""
    while '"result_size"' not in frame:
        received = await transport.receive()
        assert isinstance(received, str)
        frame = received[:1_000]
    assert f'"result_size":{RESULT_MIB * MIB}' in frame


async def nothing(_transport: Transport, written: trio.Event) -> None:
    """Read nothing."""
    await written.wait()


async def at_once(_store: SqliteStore) -> None:
    """Do not pause."""


async def until_stored(store: SqliteStore) -> None:
    """Wait until the store has everything."""
    for _ in range(3):
        await store.flushed()


@pytest.mark.parametrize("pause", [at_once, until_stored])
@pytest.mark.parametrize("read", [to_the_end, nothing])
async def test_the_size_of_a_result_costs_no_memory(
    tmp_path: Path,
    pause: Callable[[SqliteStore], Awaitable[None]],
    read: Callable[[Transport, trio.Event], Awaitable[None]],
) -> None:
    """However fast a result is streamed and read, it waits on the disk and not in memory."""
    await stream(tmp_path, pause, read)
