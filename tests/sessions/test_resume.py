"""What a resume replays (§6.3)."""

from __future__ import annotations

import random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from tests.inside import live_jobs
from tests.reading import lines, up_to
from tests.sessions.support import Stage, open_stage


async def raw_replay(stage: Stage, resume: Frame, count: int) -> tuple[Peer, list[str]]:
    """Resume, and return the texts of `count` frames after the welcome as they were sent."""
    peer = await stage.resumed(resume)
    texts = [await peer.transport.receive() for _ in range(count)]
    assert all(isinstance(text, str) for text in texts)
    return peer, [str(text) for text in texts]


# --- what comes back


@pytest.mark.spec("6.3-2", "6.3-3", "8.3-1", "1.0/6.3-1", "1.0/6.3-2", "1.0/6.3-4")
async def test_what_was_missed_then_what_is_live_then_the_end(autojump_clock: MockClock) -> None:
    """Each event comes once: before the drop, missed, live, and the terminal."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("puppet"))["job_id"]
        await stage.puppet.say("1", "2", "3", "4", "5")
        before = lines(await up_to(peer, 5))
        await peer.drop()
        await stage.puppet.say("6", "7")
        second = await stage.resumed(peer.resume_from())
        missed = lines(await up_to(second, 7))
        await stage.puppet.say("8")
        live = lines(await up_to(second, 8))
        await stage.puppet.finish()
        assert (await second.receive())["payload"]["result"] == "done"
        assert (before, missed, live) == (["1", "2", "3", "4", "5"], ["6", "7"], ["8"])
        assert stage.recorder.terminal(job)
        assert stage.puppet.runs == 1


@pytest.mark.spec("6.3-3", "1.0/6.3-2")
async def test_an_end_that_was_missed_is_replayed(autojump_clock: MockClock) -> None:
    """The terminal of a job that ended while its client was away is replayed."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("sleeper", 30))["job_id"]
        await peer.drop()
        await trio.sleep(60)
        assert not live_jobs(stage.runtime)
        second = await stage.resumed(peer.resume_from())
        frames = await up_to(second, 3)
        assert lines(frames) == ["asleep", "awake"]
        assert (frames[-1]["type"], frames[-1]["job_id"]) == ("job.result", job)


async def test_a_client_that_missed_nothing_is_sent_nothing(autojump_clock: MockClock) -> None:
    """A resume from the latest number succeeds without a replay."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("chatty", 3))["job_id"]
        await peer.until_terminal(job)
        await peer.drop()
        second = await stage.resumed(peer.resume_from())
        await second.send("session.ping", {"nonce": "n"})
        assert (await second.receive())["type"] == "session.pong"


async def test_a_session_without_events_resumes_from_zero(autojump_clock: MockClock) -> None:
    """A session without events can be resumed many times."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        for _ in range(5):
            await peer.drop()
            peer = await stage.resumed(peer.resume_from())
        job = (await peer.submit("chatty", 1))["job_id"]
        await peer.until_terminal(job)


@pytest.mark.spec("6.3-3")
async def test_a_replay_is_the_same_every_time(autojump_clock: MockClock) -> None:
    """A replay is the same byte for byte every time, acceptance and terminal included."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        job = await peer.submit("chatty", 20)
        cancelled = await peer.submit("sleeper", 1000)
        await peer.send("job.cancel", {"job_id": cancelled["job_id"]})
        await peer.until_terminal(job["job_id"])
        await peer.until_terminal(cancelled["job_id"])
        top = stage.recorder.highest(str(peer.session_id))
        count = top + 3  # two acceptances and a job.cancelled have no number
        resume = peer.resume_from() | {"last_event_seq": 0}
        peer, first = await raw_replay(stage, resume, count)
        await peer.drop()
        resume = peer.resume_from() | {"last_event_seq": 0}
        peer, second = await raw_replay(stage, resume, count)
        assert first == second
        assert [text.count('"type":"job.accepted"') for text in first].count(1) == 2
        await peer.send("session.ping", {"nonce": "nothing comes behind it"})
        assert '"session.pong"' in str(await peer.transport.receive())


@given(last=st.integers(0, 40))
@pytest.mark.spec("6.3-3", "1.0/8.3-2")
def test_a_replay_begins_wherever_it_is_asked_to(last: int) -> None:
    """A replay from any number has exactly the numbers after it."""

    async def show() -> None:
        async with open_stage() as stage:
            peer = await stage.welcomed()
            await peer.until_terminal((await peer.submit("chatty", 19))["job_id"])
            await peer.until_terminal((await peer.submit("chatty", 19))["job_id"])
            await peer.drop()
            second = await stage.resumed(peer.resume_from() | {"last_event_seq": last})
            numbers: list[int] = []
            while len(numbers) < 40 - last:
                frame = await second.receive()
                numbers += [frame["event_seq"]] if "event_seq" in frame else []
            assert numbers == list(range(last + 1, 41))
            await second.send("session.ping", {"nonce": "n"})
            while (frame := await second.receive())["type"] != "session.pong":
                assert "event_seq" not in frame

    trio.run(show, clock=MockClock(autojump_threshold=0))


async def test_an_acceptance_that_was_missed_is_replayed(autojump_clock: MockClock) -> None:
    """An acceptance that was lost with the connection comes with the resume."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        resume = peer.resume_from()
        submit = await peer.send("job.submit", {"agent": "puppet"})
        await wait_all_tasks_blocked()
        await peer.drop()
        await stage.puppet.say("hello")
        second = await stage.resumed(resume)
        accepted, event = await second.receive(), await second.receive()
        assert (accepted["type"], accepted["payload"]["request_id"]) == ("job.accepted", submit)
        assert event["job_id"] == accepted["payload"]["job_id"]


async def test_an_acceptance_that_was_seen_is_not_replayed(autojump_clock: MockClock) -> None:
    """A resume from a number after an acceptance does not replay that."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.submit("puppet")
        await stage.puppet.say("1", "2")
        await up_to(peer, 1)
        await peer.drop()
        second = await stage.resumed(peer.resume_from())
        assert (await second.receive())["event_seq"] == 2


@pytest.mark.spec("6.3-3", "1.0/8.3-2")
async def test_a_replay_larger_than_every_buffer_comes_whole(autojump_clock: MockClock) -> None:
    """The welcome comes at once, and ten times `tail_frames` events follow in order."""
    async with open_stage(outbox_items=10, tail_frames=50, tail_bytes=50_000) as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("chatty", 2_000))["job_id"]
        await peer.drop()
        await trio.sleep(1)
        for _ in range(2):  # the first resume numbers events, the second replays them
            started = trio.current_time()
            peer = await stage.resumed(peer.resume_from() | {"last_event_seq": 0})
            assert trio.current_time() - started < 1
            assert (await peer.until_terminal(job))["event_seq"] == 2_001
            await peer.drop()


@pytest.mark.spec("7.4-1")
async def test_a_resumed_session_may_cancel_its_jobs(autojump_clock: MockClock) -> None:
    """A resumed session may cancel the jobs it submitted before."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("puppet"))["job_id"]
        await peer.drop()
        await trio.sleep(100)
        second = await stage.resumed(peer.resume_from())
        await second.send("job.cancel", {"job_id": job})
        await second.expect("job.cancelled", job_id=job)
        terminal = await second.until_terminal(job)
        assert (terminal["payload"]["code"], terminal["payload"]["final_status"]) == (
            "CANCELLED",
            "cancelled",
        )


@pytest.mark.spec("8.3-1", "8.3-2", "1.0/8.3-2")
async def test_any_number_of_drops_leaves_one_gap_free_story(autojump_clock: MockClock) -> None:
    """Over any number of drops a client reads 1 to N, each number once."""
    chance = random.Random(6)
    async with open_stage() as stage:
        peer = await stage.welcomed()
        jobs = [(await peer.submit("chatty", 200))["job_id"] for _ in range(3)]
        for _ in range(60):
            for _ in range(chance.randrange(25)):
                with trio.move_on_after(0.1):
                    await peer.receive()
            await peer.drop()
            await trio.sleep(chance.choice((0, 0.01, 5)))
            peer = await stage.resumed(peer.resume_from())
        for job in jobs:
            while stage.recorder.terminal(job) is None:
                await peer.receive()
            assert len(stage.recorder.events(job)) == 200
        assert stage.recorder.highest(str(peer.session_id)) == 603
