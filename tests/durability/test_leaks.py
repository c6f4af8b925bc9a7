"""Traffic that is past every window leaves nothing."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import JobContext, MemoryStore
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import Peer
from tests.durability.stores import TABLES
from tests.durability.story import FEATURES, World
from tests.footprint import blocks, tasks
from tests.inside import SWEEP_SECONDS, held
from tests.reading import next_unrecorded
from tests.stage import hello_payload
from tests.store.engines import EACH_LOCAL_ENGINE, ENGINES, Engine

RETENTION_SECONDS = 100
ROUNDS = 8


async def visit(world: World, n: int) -> None:
    """Open a session, run a job with a key, and leave, sometimes in the middle."""
    world.recorder._sessions.clear()
    peer = world.connect()
    await peer.hello(features=FEATURES)
    await peer.send("job.submit", {"agent": "teller", "input": 0, "idempotency_key": str(n)})
    if n % 4:
        await peer.expect("job.result")
    if n % 2:
        await peer.send("session.ack", {"last_processed_seq": 1})
    await peer.close()
    world.runs.clear()


async def check_nothing_stays(engine: Engine, clock: MockClock, visits: int) -> None:
    """Make rounds of `visits`, and compare the memory in use after the second with that at the end.

    A leak adds to every round; memory that threads and caches take comes and goes.
    """
    with engine.make() as store:
        world = World(
            cast("MemoryStore", store),  # World uses its interface only
            resume_window_seconds=RETENTION_SECONDS,
            finished_job_seconds=RETENTION_SECONDS,
            idempotency_seconds=2 * RETENTION_SECONDS,
            parked_sessions_per_principal=100_000,
        )
        in_use: list[int] = []
        async with world.runtime:
            tasks_before = tasks()
            for _ in range(ROUNDS):
                await visit_and_leave(world, clock, visits)
                assert held(world.runtime) == {}
                assert await engine.left(store) == {}
                assert tasks() == tasks_before
                in_use.append(blocks())
        assert in_use[-1] - in_use[1] < (ROUNDS - 2) * visits // 2


@pytest.mark.parametrize("engine", EACH_LOCAL_ENGINE)
async def test_sessions_and_jobs_leave_nothing_behind(
    engine: Engine, mock_clock: MockClock
) -> None:
    """Sessions and jobs leave nothing in the runtime and the store."""
    await check_nothing_stays(engine, mock_clock, {"memory": 500, "sqlite": 200}[engine.name])


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", EACH_LOCAL_ENGINE)
async def test_very_many_sessions_and_jobs(engine: Engine, mock_clock: MockClock) -> None:
    """Ten thousand sessions and jobs leave nothing."""
    await check_nothing_stays(engine, mock_clock, 10_000)


@pytest.mark.postgres
async def test_sessions_and_jobs_leave_nothing_in_a_database() -> None:
    """Windows end by the clock of the database; then nothing is left in it and in the runtime."""
    engine = ENGINES[-1]
    with trio.fail_after(100), engine.make() as store:
        world = World(
            cast("MemoryStore", store),  # World uses its interface only
            resume_window_seconds=1,
            finished_job_seconds=1,
            idempotency_seconds=2,
        )
        async with world.runtime:
            tasks_before = tasks()
            for n in range(40):
                await visit(world, n)
            while held(world.runtime) or await engine.left(store):  # noqa: ASYNC110 - only it knows
                await trio.sleep(0.1)
            await wait_all_tasks_blocked()
            assert tasks() == tasks_before


async def visit_and_leave(world: World, clock: MockClock, visits: int) -> None:
    """Make visits, and wait until nothing of them is kept."""
    for n in range(visits):
        await visit(world, n)
    # In steps, because this clock stands still while threads are at work.
    for _ in range(8):
        await world.store.flushed()
        await wait_all_tasks_blocked(0.01)
        clock.jump(RETENTION_SECONDS / 2)
    await world.store.flushed()


# -- in one session


async def entered(world: World) -> Peer:
    """Return a peer with a session."""
    peer = world.connect()
    await peer.hello(features=FEATURES)
    return peer


async def growth(times: int, ask: Callable[[], Awaitable[object]]) -> int:
    """Return how much memory the second half of `times` requests has added."""
    in_use: list[int] = []
    for _ in range(2):
        for _ in range(times // 2):
            await ask()
        await wait_all_tasks_blocked()
        in_use.append(blocks())
    return in_use[1] - in_use[0]


async def test_short_jobs_leave_nothing_in_their_session(autojump_clock: MockClock) -> None:
    """Thousands of acknowledged jobs leave nothing in their session, after their retention."""
    world = World(MemoryStore(), finished_jobs=10, idempotency_seconds=0)
    async with world.runtime:
        peer = await entered(world)

        async def have_one_done() -> None:
            await peer.send("job.submit", {"agent": "teller", "input": 0})
            seq = (await next_unrecorded(peer, "job.result"))["event_seq"]
            await peer.send("session.ack", {"last_processed_seq": seq})
            world.runs.clear()
            await trio.sleep(0.5)

        assert await growth(2_000, have_one_done) < 500
        most = 10 + SWEEP_SECONDS / 0.5 + 1
        assert all(len(getattr(world.store._tables, name)) <= most for name in TABLES)


@pytest.mark.parametrize(
    ("kind", "payload", "answer"),
    [
        ("session.ping", {"nonce": "n"}, "session.pong"),
        ("job.cancel", {"job_id": "job_of_nobody"}, "session.error"),
        ("job.submit", {"agent": "nobody"}, "session.error"),
        ("job.submit", {"agent": "nobody", "idempotency_key": "k"}, "session.error"),
        ("session.list_jobs", {}, "session.error"),
        ("session.unheard_of", {}, "session.error"),
    ],
)
async def test_what_is_answered_is_forgotten(
    kind: str, payload: Frame, answer: str, autojump_clock: MockClock
) -> None:
    """Thousands of messages, refused or not, leave neither tasks nor memory."""
    world = World(MemoryStore())
    async with world.runtime:
        peer = await entered(world)

        async def ask() -> None:
            await peer.send(kind, payload)
            await next_unrecorded(peer, answer)
            await trio.sleep(0.1)

        await ask()  # the first command starts a task that stays
        tasks_before = tasks()
        assert await growth(4_000, ask) < 500
        assert tasks() == tasks_before


# -- linear time


async def test_cost_grows_with_the_work_and_no_faster(autojump_clock: MockClock) -> None:
    """Sixteen times the events, sent live, replayed and acknowledged, cost about as much more.

    If anything were searched for each event, the cost would be 256 times as much.
    """
    few, many = [await cost_of(events) for events in (1_000, 16_000)]
    assert many < 5 * 16 * few


async def cost_of(events: int) -> float:
    """Return the processor time of two interleaved jobs with `events` events in all."""
    world = World(MemoryStore())

    @world.runtime.agent("chatty")
    async def chatty(job: JobContext) -> None:
        for _ in range(events // 2):
            await job.log("")
            await trio.lowlevel.checkpoint()

    async with world.runtime:
        began: float = time.thread_time()
        peer = await entered(world)
        for _ in range(2):
            await peer.send("job.submit", {"agent": "chatty"})
        for _ in range(2):
            await next_unrecorded(peer, "job.result")
        resume = {**peer.resume_from(), "last_event_seq": 0}
        again = world.connect()
        await again.send("session.hello", hello_payload() | {"resume": resume})
        for _ in range(2):
            await next_unrecorded(again, "job.result")
        for seq in range(1, events, 10):
            await again.send("session.ack", {"last_processed_seq": seq})
        await wait_all_tasks_blocked()
        return time.thread_time() - began
