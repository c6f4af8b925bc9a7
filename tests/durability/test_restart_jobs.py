"""Jobs and idempotency keys over a runtime's kill and the next one's start."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import DuplicateKey, JobContext, MemoryStore
from arcp_trio.testing import open_peers
from arcp_trio.wire.errors import JobNotFound
from arcp_trio.wire.json import Json
from tests.durability.restarts import lost_job, resumed, successor, welcomed
from tests.durability.stores import crash
from tests.durability.story import World
from tests.durability.support import agents
from tests.inside import hold_answers
from tests.stage import BOB, make_runtime


@pytest.fixture
def world() -> World:
    """The first runtime."""
    return World(MemoryStore())


@pytest.mark.parametrize("parked", [False, True], ids=["attached", "parked"])
async def test_a_job_goes_down_with_its_runtime(
    world: World, autojump_clock: MockClock, *, parked: bool
) -> None:
    """Its session gets one terminal, a retryable INTERNAL_ERROR, after the frames it has seen."""
    async with world.runtime:
        peer, job_id = await lost_job(world)
        if parked:
            await peer.close()
            await trio.sleep(1)
        second = successor(world)
    async with second.runtime:
        again = await resumed(second, peer.resume_from())
        end = await again.until_terminal(job_id)
        assert end["event_seq"] == 2
        assert end["payload"]["final_status"] == "error"
        assert end["payload"]["code"] == "INTERNAL_ERROR"
        assert end["payload"]["retryable"] is True
        assert not second.runs, "it ran again"
        fresh = await again.submit("teller", 1)
        assert (await again.until_terminal(fresh["job_id"]))["event_seq"] == 4


@pytest.mark.spec("7.4-3")
@pytest.mark.parametrize(
    ("request_type", "answer", "details"),
    [
        ("job.cancel", "job.cancelled", None),
        (
            "x-vendor.arcp-trio.stop",
            "x-vendor.arcp-trio.stopped",
            {"stopped_by": "alice", "reason": "enough"},
        ),
    ],
)
async def test_a_cancelled_job_stays_cancelled_over_a_restart(
    request_type: str, answer: str, details: Json, autojump_clock: MockClock
) -> None:
    """A job that was cancelled or stopped before the kill ends as cancelled, and not retryable."""
    store = MemoryStore()
    runtime = make_runtime(agents, store=store)

    @runtime.agent("tidy")
    async def tidy(_: JobContext) -> None:
        """Stay, and take ten seconds to clean up."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(10)

    async with runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        job_id = (await peer.submit("tidy"))["job_id"]
        await peer.send(request_type, {"job_id": job_id, "reason": "enough"})
        await peer.expect(answer, job_id=job_id)
        resume = peer.resume_from()
        left = crash(store)
    successor_of_it = make_runtime(agents, store=left)
    async with successor_of_it, open_peers(successor_of_it) as peers:
        again = await peers.connect()
        await again.hello(resume=resume)
        end = await again.until_terminal(job_id)
        assert end["payload"]["final_status"] == "cancelled"
        assert end["payload"]["code"] == "CANCELLED"
        assert end["payload"]["message"] == "enough"
        assert end["payload"].get("details") == details
        assert end["payload"]["retryable"] is False


async def test_a_job_that_went_down_takes_no_place(world: World, autojump_clock: MockClock) -> None:
    """A job that a restart has ended does not count as running."""
    async with world.runtime:
        peer, _ = await lost_job(world)
        second = successor(world, jobs=1, jobs_per_principal=1)
    async with second.runtime:
        again = await resumed(second, peer.resume_from())
        await again.submit("waiter")


async def test_any_number_of_restarts_is_one_story(world: World, autojump_clock: MockClock) -> None:
    """Over five runtimes, with a job lost in each, the numbers of the session continue."""
    ends: list[int] = []
    async with world.runtime:
        peer, job_id = await lost_job(world)
        world = successor(world)
    for _ in range(5):
        async with world.runtime:
            peer = await resumed(world, peer.resume_from())
            ends.append((await peer.until_terminal(job_id))["event_seq"])
            job_id = (await peer.submit("waiter"))["job_id"]
            await peer.expect("job.event")
            world = successor(world)
    assert ends == [2, 4, 6, 8, 10]


async def test_a_key_stands_for_a_job_that_went_down(
    world: World, autojump_clock: MockClock
) -> None:
    """The key brings the same acceptance and the same terminal, also in a new session."""
    async with world.runtime:
        peer = await welcomed(world)
        accepted = await peer.submit("waiter", idempotency_key="k")
        second = successor(world)
    async with second.runtime:
        again = await resumed(second, peer.resume_from())
        other = await welcomed(second)
        for who in (again, other):
            repeated = await who.submit("waiter", idempotency_key="k")
            assert repeated | {"request_id": 0} == accepted | {"request_id": 0}
            end = await who.until_terminal(accepted["job_id"])
            assert end["payload"]["code"] == "INTERNAL_ERROR"
        with pytest.raises(DuplicateKey):
            await again.submit("teller", 3, idempotency_key="k")
        stranger = second.connect()
        await stranger.hello(token=BOB)
        theirs = (await stranger.submit("teller", 0, idempotency_key="k"))["job_id"]
        await stranger.until_terminal(theirs)
        assert theirs in second.runs


async def test_an_end_that_was_told_is_told_again(world: World, autojump_clock: MockClock) -> None:
    """After a restart and a resume, a key brings the terminal that the session has had."""
    async with world.runtime:
        peer = await welcomed(world)
        accepted = await peer.submit("teller", 2, idempotency_key="k")
        end = await peer.until_terminal(accepted["job_id"])
        await peer.submit("teller", 2, idempotency_key="k")
        told = await peer.until_terminal(accepted["job_id"])
        second = successor(world)
    async with second.runtime:
        again = await resumed(second, peer.resume_from())
        await again.submit("teller", 2, idempotency_key="k")
        repeated = await again.until_terminal(accepted["job_id"])
        numbers = [frame["event_seq"] for frame in (end, told, repeated)]
        assert numbers == [end["event_seq"] + n for n in range(3)]
        assert repeated["payload"] == end["payload"]
        assert not second.runs


async def test_an_acceptance_on_its_way_is_not_one_that_was_told(
    world: World, autojump_clock: MockClock
) -> None:
    """After a kill before an acceptance is sent, its key brings acceptance and terminal."""
    async with world.runtime:
        peer = await welcomed(world)
        hold_answers(world.runtime, peer.session_id)
        await peer.send("job.submit", {"agent": "waiter", "idempotency_key": "k"})
        while not world.store._tables.keys:  # noqa: ASYNC110 - the instant of its commit
            await trio.lowlevel.checkpoint()
        assert not (await world.store.job(job_of_key(world))).submitters  # type: ignore[union-attr]
        second = successor(world)
    async with second.runtime:
        again = await resumed(second, peer.resume_from())
        repeated = await again.submit("waiter", idempotency_key="k")
        assert (await again.until_terminal(repeated["job_id"]))["event_seq"] == 1


def job_of_key(world: World) -> str:
    """Return the job of the only key."""
    (row,) = world.store._tables.keys.values()
    return row.job_id


async def test_retention_goes_on(autojump_clock: MockClock) -> None:
    """A finished job and its key are forgotten when due, however long no runtime ran."""
    world = World(MemoryStore(), finished_job_seconds=1_000, idempotency_seconds=2_000)
    async with world.runtime:
        peer = await welcomed(world)
        first = await peer.submit("teller", 0, idempotency_key="k")
        await peer.until_terminal(first["job_id"])
        second = successor(world, finished_job_seconds=1_000, idempotency_seconds=2_000)
    await trio.sleep(1_500)
    async with second.runtime:
        await trio.sleep(10)
        assert await second.store.job(first["job_id"]) is None
        other = await welcomed(second)
        with pytest.raises(JobNotFound):
            await other.submit("teller", 0, idempotency_key="k")
        assert not second.runs
        await trio.sleep(500)
        late = await welcomed(second)
        again = (await late.submit("teller", 0, idempotency_key="k"))["job_id"]
        await late.until_terminal(again)
        assert again in second.runs
