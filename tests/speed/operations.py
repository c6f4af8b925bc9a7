"""Counts what a runtime does for its clients: figures that are the same on every machine.

A client of these tests is bytes that the test's own task writes and reads, so every other task is
the runtime's. The clock is virtual and only the test moves it; threads, where there are any, are
waited for by what they bring about.
"""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final

import attrs
import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Agents, JobContext, Limits, Runtime
from arcp_trio.front.serve import serve_stream
from arcp_trio.runtime import watchdog
from arcp_trio.store.interface import Store
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.transport import memory_streams
from arcp_trio.transport.at_once import WritesAtOnce
from arcp_trio.transport.frames import client_texts
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import Json
from tests import metrics
from tests.stage import make_runtime

TICK_SECONDS: Final = 0.001
"""So short that nothing else is due in a thousand of them."""

CALLS_OF_THREADS: Final = "<TrioToken.run_sync_soon task>"
"""The task of Trio in which calls from threads are made."""
WATCHDOG: Final = "watchdog"
"""The thread that looks at the loop ten times a second of real time."""

_UPGRADE: Final = (
    b"GET /arcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)

agents: Final = Agents()


@agents.agent("echo")
async def echo(job: JobContext) -> Json:
    """Return the input."""
    return job.input


@agents.agent("ticker")
async def ticker(job: JobContext) -> None:
    """Log a line at each tick, until the job is ended from outside."""
    while True:
        await trio.sleep(TICK_SECONDS)
        await job.log("a line of some length, as agents write them")


@agents.agent("sleeper")
async def sleeper(_job: JobContext) -> None:
    """Sleep until the job is ended from outside."""
    await trio.sleep_forever()


@agents.agent("chatty")
async def chatty(job: JobContext) -> None:
    """Log as many lines as the input says."""
    for _ in range(job.input):
        await job.log("a line of some length, as agents write them")


@attrs.define
class Counts:
    """How often a runtime has done each of the things that cost it most."""

    steps: int = 0
    """Times that a task ran: one for each checkpoint, and one for each wake from a wait."""
    tasks: int = 0
    """Tasks that were started."""
    transactions: int = 0
    """Groups of writes that were stored."""
    sends: int = 0
    """Calls that write to the streams to the clients, each of which is a system call."""
    hand_overs: int = 0
    """Calls from other threads into the event loop's, one for each piece of work of a thread."""
    blocks: int = 0
    """Pieces of memory that were allocated and are still in use."""

    def __sub__(self, other: Counts) -> Counts:
        before = attrs.astuple(other)
        return Counts(*(a - b for a, b in zip(attrs.astuple(self), before, strict=True)))

    def above(self, most: Counts) -> dict[str, str]:
        """Return what there is more of than allowed."""
        mine, bounds = attrs.asdict(self), attrs.asdict(most)
        return {
            name: f"{mine[name]:,} instead of {bound:,}"
            for name, bound in bounds.items()
            if mine[name] > bound
        }


class Memory:
    """How many pieces of memory a block has allocated that were in use at its end."""

    blocks = 0


@contextmanager
def traced_memory() -> Generator[Memory]:
    """Count the allocations of the block, but for those of tests."""
    memory = Memory()
    gc.collect()
    tracemalloc.start()
    try:
        yield memory
        gc.collect()
        others = [tracemalloc.__file__, "*/tests/*", "<unknown>"]
        taken = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(inclusive=False, filename_pattern=other) for other in others]
        )
        memory.blocks = sum(found.count for found in taken.statistics("filename"))
    finally:
        tracemalloc.stop()


class Counter(trio.abc.Instrument):
    """Counts the steps and tasks of the runtime: neither those of the test, nor Trio's own."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.thread = threading.current_thread()
        self._test = trio.lowlevel.current_task()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step of a task."""
        self.counts.steps += task is not self._test and task.name != CALLS_OF_THREADS

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """Count a task."""
        self.counts.tasks += 1


class CountedStream(trio.abc.Stream):
    """The runtime's end of a stream, which counts what is sent."""

    def __init__(self, stream: trio.abc.Stream, counts: Counts) -> None:
        self._stream, self._counts = stream, counts

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send, and count."""
        self._counts.sends += 1
        await self._stream.send_all(data)

    def write_at_once(self, data: bytes) -> int:
        """Send without waiting, and count."""
        self._counts.sends += 1
        assert isinstance(self._stream, WritesAtOnce)
        return self._stream.write_at_once(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait for room."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive."""
        return bytes(await self._stream.receive_some(max_bytes))

    async def aclose(self) -> None:
        """Close."""
        await self._stream.aclose()


class Client:
    """One connection, of bytes; it finds frames by what is in them."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._received = b""

    async def upgrade(self) -> None:
        """Ask for a WebSocket."""
        await self._stream.send_all(_UPGRADE)
        await self.until(b"\r\n\r\n")

    async def hello(self, token: str = TEST_TOKEN) -> None:
        """Open a session."""
        capabilities = {"encodings": ["json"], "features": ["heartbeat", "ack"]}
        await self.send(
            "session.hello",
            client={"name": "tests", "version": "1"},
            auth={"scheme": "bearer", "token": token},
            capabilities=capabilities,
        )
        await self.until(b'"session.welcome"')

    async def send(self, kind: str, **payload: Json) -> None:
        """Send a message."""
        frame = {"arcp": "1.1", "id": new_id(), "type": kind, "payload": payload}
        await self._stream.send_all(client_texts([msgspec.json.encode(frame)]))

    async def submit(self, agent: str, given: Json = None) -> None:
        """Submit a job, and wait until it is accepted."""
        await self.send("job.submit", agent=agent, input=given)
        await self.until(b'"job.accepted"')

    async def run(self, agent: str, given: Json = None, **more: Json) -> None:
        """Submit a job, and wait for its result."""
        await self.send("job.submit", agent=agent, input=given, **more)
        await self.until(b'"job.result"')

    async def until(self, mark: bytes, times: int = 1) -> None:
        """Receive until the mark has come this many times; what stands before is dropped."""
        while self._received.count(mark) < times:
            self._received += await self._stream.receive_some()
        self._received = self._received.rpartition(mark)[2]


class House:
    """A runtime whose operations are counted, and its clients."""

    def __init__(self, runtime: Runtime, counter: Counter, clock: MockClock) -> None:
        self.runtime = runtime
        self._counter = counter
        self._clock = clock

    async def tick(self, clients: Sequence[Client]) -> None:
        """Have each ticker emit an event, and wait until each of these clients has received it."""
        await wait_all_tasks_blocked()  # an event comes before its agent sleeps again
        self._clock.jump(TICK_SECONDS)
        for client in clients:
            await client.until(b'"event_seq"')

    async def count(self, work: Callable[[], Awaitable[object]]) -> Counts:
        """Return what the runtime does for this work, up to where it waits for more."""
        await wait_all_tasks_blocked()
        before = self._counted()
        with traced_memory() as memory:
            await work()
            await wait_all_tasks_blocked()
        return attrs.evolve(self._counted() - before, blocks=memory.blocks)

    def _counted(self) -> Counts:
        commits = metrics.parse(self.runtime.exposition())["arcp_store_commit_seconds"].samples
        transactions = commits["arcp_store_commit_seconds_count", frozenset()]
        return attrs.evolve(self._counter.counts, transactions=int(transactions))

    def connect(self) -> Client:
        """Connect a client, which says nothing yet."""
        ours, theirs = memory_streams()
        counted = CountedStream(theirs, self._counter.counts)
        serve = partial(serve_stream, self.runtime, counted, "memory", private=True)
        self.runtime.start_connection(serve, "memory")
        return Client(ours)

    async def client(self) -> Client:
        """Connect a client, and open its session."""
        client = self.connect()
        await client.upgrade()
        await client.hello()
        return client

    async def clients(self, count: int) -> list[Client]:
        """Connect as many clients."""
        return [await self.client() for _ in range(count)]


@asynccontextmanager
async def counted(
    store: Store, clock: MockClock, patch: pytest.MonkeyPatch
) -> AsyncGenerator[House]:
    """Run a runtime over this store, and count its operations."""
    counter = Counter()
    call_back = trio.lowlevel.TrioToken.run_sync_soon

    def counting(token: trio.lowlevel.TrioToken, *args: Any, **kwargs: Any) -> None:
        thread = threading.current_thread()
        counter.counts.hand_overs += thread.name != WATCHDOG and thread is not counter.thread
        call_back(token, *args, **kwargs)

    patch.setattr(trio.lowlevel.TrioToken, "run_sync_soon", counting)
    # On a busy machine it says that the loop is held, and its lines are kept until the test's end.
    patch.setattr(watchdog.log, "disabled", True)
    limits = Limits(sessions_per_principal=10_000, jobs_per_principal=10_000)
    store.pace_seconds = 0.0  # no group waits for time to pass
    trio.lowlevel.add_instrument(counter)
    try:
        async with make_runtime(agents, store=store, limits=limits) as runtime:
            try:
                yield House(runtime, counter, clock)
            finally:
                clock.rate = 100  # for the waits of the shutdown
    finally:
        trio.lowlevel.remove_instrument(counter)
