"""A runtime over the store of a runtime that was killed."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import DuplicateKey, InternalError, JobContext, MemoryStore
from arcp_trio.store.errors import StoreError
from arcp_trio.testing import open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import Peer
from arcp_trio.wire.errors import JobNotFound, ResumeWindowExpired
from arcp_trio.wire.json import Json
from tests.durability.stores import FaultyStore, copy_into, crash
from tests.durability.story import FEATURES, World, told
from tests.durability.support import agents
from tests.stage import BOB, make_runtime

WINDOW_SECONDS = 600


@pytest.fixture
def world() -> World:
    """The first runtime."""
    return World(MemoryStore())


def successor(world: World, **limits: Any) -> World:
    """Return a runtime over what this one would leave if it were killed now."""
    return World(crash(world.store), recorder=world.recorder, clock=world.clock, **limits)


async def welcomed(world: World) -> Peer:
    """Return a peer with a new session."""
    peer = world.connect()
    await peer.hello(features=FEATURES)
    return peer


async def resumed(world: World, resume: Frame, **hello: str) -> Peer:
    """A peer that goes on with a session.

    Raises:
        ArcpError: it may not.
    """
    peer = world.connect()
    await peer.hello(features=FEATURES, resume=resume, **hello)
    return peer


async def lost_job(world: World) -> tuple[Peer, str]:
    """Return a peer whose job has emitted an event and runs on, and the job's id."""
    peer = await welcomed(world)
    job_id: str = (await peer.submit("waiter"))["job_id"]
    await peer.expect("job.event")
    return peer, job_id


# -- jobs


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
        assert (await stranger.submit("teller", 0, idempotency_key="k"))["job_id"] in second.runs


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
        assert (await late.submit("teller", 0, idempotency_key="k"))["job_id"] in second.runs


# -- sessions


@pytest.mark.spec("6.3-3", "6.3-4")
async def test_a_session_resumes_from_wherever_it_could(
    world: World, autojump_clock: MockClock
) -> None:
    """Resumes from floor to top replay the same frames; others get RESUME_WINDOW_EXPIRED."""
    async with world.runtime:
        peer = await welcomed(world)
        job = await peer.submit("teller", 8)
        await peer.until_terminal(job["job_id"])
        await peer.send("session.ack", {"last_processed_seq": 3})
        await wait_all_tasks_blocked()
        resume = peer.resume_from()
        second = successor(world)
    async with second.runtime:
        for bad in (2, 10, 1_000_000):
            with pytest.raises(ResumeWindowExpired):
                await resumed(second, {**resume, "last_event_seq": bad})
        for after in range(3, 10):
            again = await resumed(second, {**resume, "last_event_seq": after})
            if after < 9:
                await again.expect("job.result", event_seq=9)
            resume = again.resume_from()


async def test_the_token_before_is_good_while_nobody_was_heard(
    world: World, autojump_clock: MockClock
) -> None:
    """After a welcome and a kill, both tokens are valid until the client uses one."""
    async with world.runtime:
        peer = await welcomed(world)
        await peer.close()
        unheard = await resumed(world, before := peer.resume_from())
        second = successor(world)
        await unheard.send("session.ping", {"nonce": "n"})
        await wait_all_tasks_blocked()
        third = successor(world)
    async with second.runtime:
        await resumed(second, before)
        await resumed(second, unheard.resume_from())
        with pytest.raises(ResumeWindowExpired):
            await resumed(second, before)
    async with third.runtime:
        with pytest.raises(ResumeWindowExpired):
            await resumed(third, before)
        await resumed(third, unheard.resume_from())


async def test_tokens_are_stored_as_digests(world: World, autojump_clock: MockClock) -> None:
    """The store contains no token, only digests."""
    async with world.runtime:
        peer, _ = await lost_job(world)
        assert peer.resume_token is not None
        for table in vars(crash(world.store)).values():
            assert peer.resume_token not in repr(table)
            assert peer.resume_token.removeprefix("rt_") not in repr(table)


async def test_a_session_stays_its_principals(world: World, autojump_clock: MockClock) -> None:
    """Another principal cannot resume a session after a restart."""
    async with world.runtime:
        peer = await welcomed(world)
        second = successor(world)
    async with second.runtime:
        with pytest.raises(ResumeWindowExpired):
            await resumed(second, peer.resume_from(), token=BOB)
        await resumed(second, peer.resume_from())


async def test_features_and_dialect_are_kept(world: World, autojump_clock: MockClock) -> None:
    """A resume without a hello keeps the negotiated features and the dialect."""
    async with world.runtime:
        peer = world.connect()
        capabilities: Json = {"features": ["ack"], "agents": []}
        welcome = await peer.hello(capabilities=capabilities)
        assert "heartbeat_interval_sec" not in welcome["payload"]
        job = await peer.submit("waiter")
        await peer.expect("job.event")
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        await wait_all_tasks_blocked()
        second = successor(world)
    async with second.runtime:
        again = second.connect()
        await again.send("session.resume", peer.resume_from())
        welcome = await again.expect("session.welcome")
        assert "heartbeat_interval_sec" not in welcome["payload"]
        end = await again.until_terminal(job["job_id"])
        assert (end["type"], end["payload"]["final_status"]) == ("job.result", "cancelled")
        await again.send("job.cancel", {"job_id": job["job_id"]})
        await again.send("session.ping", {"nonce": "n"})
        assert (await again.receive())["type"] == "session.pong", "a cancel too late was answered"


async def test_windows_begin_anew(world: World, autojump_clock: MockClock) -> None:
    """After a restart, the window of a session is a full one."""
    async with world.runtime:
        peer, late = await welcomed(world), await welcomed(world)
        await peer.close()
        await late.close()
        await trio.sleep(WINDOW_SECONDS - 10)
        second = successor(world)
    await trio.sleep(10 * WINDOW_SECONDS)
    async with second.runtime:
        await trio.sleep(WINDOW_SECONDS - 10)
        await resumed(second, peer.resume_from())
        await trio.sleep(20)
        with pytest.raises(ResumeWindowExpired):
            await resumed(second, late.resume_from())
        assert list(second.store._tables.sessions) == [peer.session_id]


async def test_parked_sessions_are_bounded_from_the_start(
    world: World, autojump_clock: MockClock
) -> None:
    """A start with a smaller bound forgets the oldest parked sessions."""
    async with world.runtime:
        peers = [await welcomed(world) for _ in range(5)]
        second = successor(world, parked_sessions_per_principal=2)
    async with second.runtime:
        for peer in peers[:3]:
            with pytest.raises(ResumeWindowExpired):
                await resumed(second, peer.resume_from())
        for peer in peers[3:]:
            await resumed(second, peer.resume_from())


async def test_a_closed_session_can_still_be_resumed(
    world: World, autojump_clock: MockClock
) -> None:
    """A closed session can be resumed within its window, also after a restart (§6.7)."""
    async with world.runtime:
        peer, job_id = await lost_job(world)
        await peer.send("session.close")
        await peer.expect("session.closed")
        second = successor(world)
    async with second.runtime:
        again = await resumed(second, peer.resume_from())
        await again.until_terminal(job_id)


async def test_a_session_whose_events_are_gone_is_told(
    world: World, autojump_clock: MockClock
) -> None:
    """A session whose missed events are past their retention gets RESUME_WINDOW_EXPIRED."""
    async with world.runtime:
        peer = await welcomed(world)
        job = await peer.submit("teller", 3)
        await peer.until_terminal(job["job_id"])
        second = successor(world, finished_job_seconds=0)
    async with second.runtime:
        await trio.sleep(10)
        with pytest.raises(ResumeWindowExpired):
            await resumed(second, {**peer.resume_from(), "last_event_seq": 0})
        again = await resumed(second, peer.resume_from())
        fresh = await again.submit("teller", 2)
        await again.until_terminal(fresh["job_id"])
        messages = [e["payload"]["body"]["message"] for e in world.recorder.events(fresh["job_id"])]
        assert messages == told(2)


# -- a store in trouble at the start


@pytest.mark.logs_error("store in trouble")
async def test_a_start_waits_for_a_store_that_cannot_be_written(
    world: World, autojump_clock: MockClock
) -> None:
    """No client gets a session before the ends of the lost jobs are stored."""
    async with world.runtime:
        peer, job_id = await lost_job(world)
        store = copy_into(FaultyStore(commit=1, seconds=30), world.store)
    second, began = World(store, recorder=world.recorder, clock=world.clock), trio.current_time()
    async with second.runtime:
        while trio.current_time() < began + 29:
            with pytest.raises(InternalError, match="the store cannot be used") as refused:
                await resumed(second, peer.resume_from())
            assert refused.value.retryable
            await trio.sleep(1)
        await trio.sleep(6)
        again = await resumed(second, peer.resume_from())
        await again.until_terminal(job_id)


@pytest.mark.logs_error("store in trouble")
async def test_a_start_in_trouble_can_be_ended(world: World, autojump_clock: MockClock) -> None:
    """A start in trouble can be left within a bound; the next start ends the lost job."""
    async with world.runtime:
        peer, job_id = await lost_job(world)
        store = copy_into(FaultyStore(commit=1, seconds=600), world.store)
    began = trio.current_time()
    async with World(store, recorder=world.recorder, clock=world.clock).runtime:
        pass
    assert trio.current_time() - began < 10
    third = World(crash(store), recorder=world.recorder, clock=world.clock)
    async with third.runtime:
        again = await resumed(third, peer.resume_from())
        await again.until_terminal(job_id)


async def test_a_start_over_a_store_that_cannot_be_read_fails(
    world: World, autojump_clock: MockClock
) -> None:
    """A start that cannot read raises the error, and changes nothing."""
    async with world.runtime:
        peer, job_id = await lost_job(world)
        store = copy_into(FaultyStore(read=1), world.store)
    with pytest.raises(StoreError, match="recover"):
        async with World(store).runtime:
            pass
    second = World(store, recorder=world.recorder, clock=world.clock)
    async with second.runtime:
        again = await resumed(second, peer.resume_from())
        await again.until_terminal(job_id)
