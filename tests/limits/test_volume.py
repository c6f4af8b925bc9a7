"""What is kept depends on the limits, not on how much there was."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import JobContext, MemoryStore
from arcp_trio.testing import Peer
from tests.durability.stores import TABLES
from tests.durability.story import World
from tests.footprint import tasks
from tests.inside import claimed_keys, jobs_in_memory, live_jobs
from tests.metrics import scrape
from tests.reading import next_unrecorded

MUCH = 1_000_000


def sizes(few: int, many: int) -> Any:
    """Parametrize `count`: few in every run, many in the soak run."""
    return pytest.mark.parametrize(
        "count", [few, pytest.param(many, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])]
    )


def world_of(**limits: Any) -> World:
    """Return a world with an agent that logs as often as its input says."""
    world = World(MemoryStore(), messages_per_second=100 * MUCH, **limits)

    @world.runtime.agent("chatty")
    async def chatty(job: JobContext) -> None:
        for _ in range(job.input):
            await job.log("")

    return world


async def entered(world: World) -> Peer:
    """Return a client with a session."""
    peer = world.connect()
    await peer.hello(features=("ack",))
    return peer


def kept(world: World) -> int:
    """Return the number of entries in all tables of the store."""
    return sum(len(getattr(world.store._tables, name)) for name in TABLES)


@sizes(50_000, 10_000_000)
async def test_a_job_that_never_stops_talking(count: int, autojump_clock: MockClock) -> None:
    """The journal of an unread job keeps to its bound, and the job ends."""
    world = world_of(journal_bytes=1_000_000, unacked_frames=1_000)
    async with world.runtime:
        peer = await entered(world)
        await peer.send("job.submit", {"agent": "chatty", "input": count})
        await next_unrecorded(peer, "job.accepted")
        await peer.close()
        await wait_all_tasks_blocked()
        assert not live_jobs(world.runtime)
        (journal,) = world.store._tables.journals.values()
        assert journal.base > count - 10_000
        assert sum(len(entry.tail) for entry in journal.entries) < 1_100_000
        assert scrape(world.runtime)("events_total") == count


@sizes(2_000, MUCH)
async def test_keys_of_many_days(count: int, autojump_clock: MockClock) -> None:
    """Of one key every five seconds those of the last hour are kept."""
    world = world_of(idempotency_seconds=3_600, finished_job_seconds=600, heartbeat_seconds=10**9)
    async with world.runtime:
        peer = await entered(world)
        jobs: list[str] = []
        for n in range(count):
            key = f"key {n}" if n != count - 1 else "key 0"
            await peer.send("job.submit", {"agent": "chatty", "input": 0, "idempotency_key": key})
            end = await next_unrecorded(peer, "job.result")
            jobs[1:] = [end["job_id"]]
            await peer.send("session.ack", {"last_processed_seq": end["event_seq"]})
            await trio.sleep(5)
            assert len(world.store._tables.keys) <= 722
        assert jobs[0] != jobs[1]
        assert len(world.store._tables.journals) <= 122
        assert claimed_keys(world.runtime) == 0


@sizes(2_000, 100_000)
async def test_submits_that_are_refused(count: int, autojump_clock: MockClock) -> None:
    """Refused submits leave no task, no timer and no entry."""
    world = world_of(jobs_per_principal=1)
    async with world.runtime:
        peer = await entered(world)
        await peer.send("job.submit", {"agent": "waiter"})
        await next_unrecorded(peer, "job.accepted")
        await wait_all_tasks_blocked()
        before, held = tasks(), kept(world)
        for n in range(count):
            refused = {"agent": "chatty", "input": 1, "max_runtime_sec": 3_600}
            if n % 2:
                refused |= {"lease_request": {"tool.call": ["["]}, "idempotency_key": str(n)}
            await peer.send("job.submit", refused)
            answer = await next_unrecorded(peer, "job.accepted", "session.error")
            assert answer["type"] == "session.error"
        await wait_all_tasks_blocked()
        assert tasks() == before
        assert kept(world) == held
        assert claimed_keys(world.runtime) == 0
        assert len(live_jobs(world.runtime)) == 1


@sizes(200, 10_000)
async def test_the_children_of_one_job(count: int, autojump_clock: MockClock) -> None:
    """Children that have ended leave memory while their parent goes on; all results can be read."""
    world = world_of()

    @world.runtime.agent("parent")
    async def parent(job: JobContext) -> list[int]:
        before = jobs_in_memory()
        children = [await job.delegate("echo", number) for number in range(10)]
        for number in range(10, count):
            children.append(await job.delegate("echo", number))
            await children[number].result()
        more = jobs_in_memory() - before
        return [more, *[await child.result() for child in children]]

    async with world.runtime:

        @world.runtime.agent("echo")
        async def echo(job: JobContext) -> Any:
            return job.input

        peer = await entered(world)
        await peer.submit("parent", lease_request={"agent.delegate": ["*"]})
        result: Any = None
        while not isinstance(result, list):  # the children end first, with their numbers
            result = (await next_unrecorded(peer, "job.result"))["payload"]["result"]
        more, *results = result
        assert more < 100
        assert results == list(range(count))


@sizes(20, 2_000)
async def test_the_logs_of_sessions_that_are_over(count: int, autojump_clock: MockClock) -> None:
    """Logs that were never acknowledged are gone after their sessions' windows."""
    world = world_of(
        resume_window_seconds=100,
        finished_job_seconds=100,
        parked_sessions_per_principal=10 * MUCH,
    )
    async with world.runtime:
        for _ in range(count):
            peer = await entered(world)
            await peer.send("job.submit", {"agent": "chatty", "input": 1_000})
            await next_unrecorded(peer, "job.result")
            await peer.close()
        assert kept(world) > count
        await trio.sleep(120)
        assert kept(world) == 0


@sizes(20_000, MUCH)
async def test_what_has_piled_up_drains_in_linear_time(
    count: int, autojump_clock: MockClock
) -> None:
    """Four times as many events take about four times as long to send, not sixteen."""
    few, many = [await cost_of_draining(size) for size in (count // 4, count)]
    assert many < 3 * 4 * few


async def cost_of_draining(events: int) -> float:
    """Return the processor time to send this many events at once."""
    world = world_of()
    async with world.runtime:
        peer = await entered(world)
        await peer.send("job.submit", {"agent": "chatty", "input": events})
        await next_unrecorded(peer, "job.accepted")
        await wait_all_tasks_blocked()
        began = time.thread_time()
        await next_unrecorded(peer, "job.result")
        return time.thread_time() - began
