"""What the runtime does for each event, round trip and handshake, counted.

The figures are those of the tree as it is. A change that makes one of them smaller lowers it here;
one that makes it larger has to be worth it. The slack is for what may vary: a finalizer that calls
into the loop, a group of writes more or less, another version of Python.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, MemoryStore, SqliteStore
from arcp_trio.store.interface import Store
from arcp_trio.store.queue import Commit
from arcp_trio.store.writes import Write
from tests import inside
from tests.speed.operations import Client, Counts, House, counted

MEMORY: Final = "memory"
DURABLE: Final = "durable"
STORES: Final = (MEMORY, DURABLE)

SESSIONS: Final = 20
TICKS: Final = 50
TRIPS: Final = 100
HANDSHAKES: Final = 200

MOST: Final = {
    # 1,000 events of 20 sessions, in 50 moments at which each session has one. An event takes three
    # steps: the agent wakes from its sleep, and the scribe takes a number, and later gets word that
    # this is stored. Each moment is one group of writes. Each event is a send. In memory the
    # journal keeps three or four blocks of each event.
    ("tokens", MEMORY): Counts(3_110, 0, 51, 1_000, 0, 4_000),
    ("tokens", DURABLE): Counts(3_170, 0, 51, 1_000, 52, 1_200),
    # 1,000 events of one job as fast as possible: what is there goes together. How much that is
    # depends on when a group is stored. There is the job's task, and a sender's for each burst.
    ("stream", MEMORY): Counts(120, 20, 20, 30, 0, 4_600),
    ("stream", DURABLE): Counts(120, 20, 20, 30, 20, 1_500),
    # 100 jobs that end at once, one after the other. Each has a task, which takes three steps: it
    # waits for two groups of writes, its acceptance and its result. Each of them is a send.
    ("trips", MEMORY): Counts(1_470, 100, 201, 200, 0, 3_400),
    ("trips", DURABLE): Counts(1_670, 100, 201, 200, 202, 400),
    # The same with a key each, which is looked up first, in a task of the submit.
    ("keyed", MEMORY): Counts(1_680, 200, 201, 200, 0, 4_200),
    ("keyed", DURABLE): Counts(1_890, 200, 201, 200, 302, 700),
    # 200 sessions. Each has three tasks: the connection, which reads its frames, its heartbeat, and
    # the session with its scribe. Neither a sender nor a clerk has anything to do. Its row is a
    # group of writes, and nothing is read. It is sent the answer to its upgrade, and the welcome.
    # The number of steps depends on the order in which these tasks run.
    ("handshakes", MEMORY): Counts(2_020, 600, 201, 400, 0, 68_000),
    ("handshakes", DURABLE): Counts(2_180, 600, 201, 400, 203, 68_000),
}


async def tokens(house: House) -> Counts:
    """Have many slow agents emit 1,000 events."""
    clients = await house.clients(SESSIONS)
    for client in clients:
        await client.submit("ticker")
    await house.tick(clients)

    async def ticks() -> None:
        for _ in range(TICKS):
            await house.tick(clients)

    return await house.count(ticks)


async def stream(house: House) -> Counts:
    """Have one fast agent emit 1,000 events."""
    client = await house.client()
    await client.run("chatty", 1_000)
    return await house.count(partial(client.run, "chatty", 1_000))


async def trips(house: House) -> Counts:
    """Run jobs that end at once."""
    client = await house.client()

    async def jobs() -> None:
        for _ in range(TRIPS):
            await client.run("echo", 1)

    await jobs()
    return await house.count(jobs)


async def keyed(house: House) -> Counts:
    """Run jobs that end at once, each under a key of its own."""
    client = await house.client()

    async def jobs(round_: int) -> None:
        for number in range(TRIPS):
            await client.run("echo", 1, idempotency_key=f"{round_}-{number}")

    await jobs(1)
    return await house.count(partial(jobs, 2))


async def handshakes(house: House) -> Counts:
    """Open sessions."""
    await house.clients(2)
    kept: list[Client] = []

    async def visits() -> None:
        kept.extend(await house.clients(HANDSHAKES))

    return await house.count(visits)


WORK: Final[dict[str, Callable[[House], Awaitable[Counts]]]] = {
    "tokens": tokens,
    "stream": stream,
    "trips": trips,
    "keyed": keyed,
    "handshakes": handshakes,
}


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("work", WORK)
async def test_no_more_operations_than_that(
    work: str, kind: str, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Steps, tasks, transactions, sends, hand-overs and kept allocations stay within bounds."""
    store = MemoryStore() if kind == MEMORY else SqliteStore(tmp_path / "arcp.db")
    async with counted(store, mock_clock, monkeypatch) as house:
        counts = await WORK[work](house)
    assert counts.above(MOST[work, kind]) == {}


# -- the bounds find what they are for


class OneByOne(MemoryStore):
    """A store with a transaction for each write."""

    async def commit_groups(
        self,
        commit: Commit,
        timed: Callable[[float], None] | None = None,
    ) -> None:
        """Commit the writes of a group one after the other."""

        async def each(writes: Sequence[Write]) -> None:
            for write in writes:
                await commit([write])
                if timed is not None:
                    timed(0)

        await super().commit_groups(each)


class InThreads(MemoryStore):
    """A store that hands each write over to a thread."""

    async def _commit(self, writes: Sequence[Write]) -> None:
        for _ in writes:
            await trio.to_thread.run_sync(int)
        await super()._commit(writes)


async def nothing() -> None:
    """Do nothing, in a task."""


def checkpoint_at_each_event(patch: pytest.MonkeyPatch) -> None:
    """Let other tasks run once more at each event."""
    log = JobContext.log

    async def log_and_wait(job: JobContext, message: str) -> None:
        await log(job, message)
        await trio.lowlevel.checkpoint()

    patch.setattr(JobContext, "log", log_and_wait)


def task_for_each_event(patch: pytest.MonkeyPatch) -> None:
    """Start a task at each event."""
    log = JobContext.log

    async def log_beside(job: JobContext, message: str) -> None:
        await log(job, message)
        trio.lowlevel.spawn_system_task(nothing)

    patch.setattr(JobContext, "log", log_beside)


def keep_each_message(patch: pytest.MonkeyPatch) -> None:
    """Keep something of each event for ever."""
    log = JobContext.log
    kept: list[object] = []

    async def log_and_keep(job: JobContext, message: str) -> None:
        await log(job, message)
        kept.append(bytearray(100))

    patch.setattr(JobContext, "log", log_and_keep)


@pytest.mark.parametrize(
    ("defect", "store", "work", "found"),
    [
        (checkpoint_at_each_event, MemoryStore, "tokens", "steps"),
        (task_for_each_event, MemoryStore, "tokens", "tasks"),
        (None, OneByOne, "tokens", "transactions"),
        (None, OneByOne, "trips", "transactions"),
        (None, InThreads, "tokens", "hand_overs"),
        (None, InThreads, "handshakes", "hand_overs"),
        (inside.small_steps, MemoryStore, "stream", "sends"),
    ],
)
async def test_one_operation_more_is_found(
    defect: Callable[[pytest.MonkeyPatch], None] | None,
    store: Callable[[], Store],
    work: str,
    found: str,
    mock_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operation more for each event, session or frame is above its bound."""
    if defect is not None:
        defect(monkeypatch)
    async with counted(store(), mock_clock, monkeypatch) as house:
        counts = await WORK[work](house)
    assert found in counts.above(MOST[work, MEMORY])
