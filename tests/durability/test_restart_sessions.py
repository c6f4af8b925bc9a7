"""Sessions over a runtime's kill and the next one's start."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import MemoryStore
from arcp_trio.wire.errors import ResumeWindowExpired
from arcp_trio.wire.json import Json
from tests.durability.restarts import lost_job, resumed, successor, welcomed
from tests.durability.stores import crash
from tests.durability.story import World, told
from tests.stage import BOB

WINDOW_SECONDS = 600


@pytest.fixture
def world() -> World:
    """The first runtime."""
    return World(MemoryStore())


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
