"""How long a session can be resumed, and what is left of it afterwards (§6.3, §6.4)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.store.records import SessionRow
from arcp_trio.testing.frames import Frame
from tests.inside import live_jobs
from tests.metrics import scrape
from tests.reading import close_code
from tests.sessions.support import Stage, open_stage
from tests.stage import BOB

SWEEP_SECONDS = 5
"""Seconds after which something that expired may still be there."""


async def forgotten(stage: Stage, resume: Frame) -> bool:
    """Return whether this session can no longer be resumed."""
    return bool((await stage.refused(resume))["code"] == "RESUME_WINDOW_EXPIRED")


@pytest.mark.spec("6.3-4", "6.4-6", "1.0/6.2-3")
async def test_a_session_lasts_as_long_as_its_window(autojump_clock: MockClock) -> None:
    """A session resumes a moment before the end of its window, and not a moment after."""
    async with open_stage(resume_window_seconds=100) as stage:
        early, late = await stage.welcomed(), await stage.welcomed()
        await early.drop()
        await late.drop()
        await trio.sleep(99.9)
        await stage.resumed(early.resume_from())
        await trio.sleep(0.2)
        assert await forgotten(stage, late.resume_from())


@pytest.mark.parametrize("offset", [0.0, 1.7, 3.3, 4.9])
async def test_a_window_that_is_over_is_over_at_once(
    offset: float, autojump_clock: MockClock
) -> None:
    """A resume after the window is refused at once, not only after the next sweep."""
    async with open_stage(resume_window_seconds=1) as stage:
        await trio.sleep(offset)
        peer = await stage.welcomed()
        await peer.drop()
        await wait_all_tasks_blocked()
        await trio.sleep(1.01)
        assert await forgotten(stage, peer.resume_from())


@pytest.mark.spec("1.0/14-3")
async def test_what_is_over_is_freed_without_any_traffic(autojump_clock: MockClock) -> None:
    """Soon after their windows, a hundred sessions are freed without any traffic."""
    async with open_stage(resume_window_seconds=100) as stage:
        assert stage.remembered() == {}
        for n in range(100):
            peer = await stage.welcomed()
            await peer.until_terminal((await peer.submit("chatty", 5))["job_id"])
            if n % 2:
                await peer.drop()
            else:
                await peer.send("session.close")
                await close_code(peer)
        await trio.sleep(99)
        assert stage.remembered()["sessions"] == 100
        await trio.sleep(1 + SWEEP_SECONDS)
        assert stage.remembered() == {}


@pytest.mark.spec("6.3-3", "1.0/6.2-3")
async def test_a_window_begins_anew_each_time(autojump_clock: MockClock) -> None:
    """A client that resumes in time has a whole window when it leaves again."""
    async with open_stage(resume_window_seconds=100) as stage:
        peer = await stage.welcomed()
        for _ in range(5):
            await peer.drop()
            await trio.sleep(90)
            peer = await stage.resumed(peer.resume_from())
        assert trio.current_time() > 400


async def test_a_connected_session_has_no_window(autojump_clock: MockClock) -> None:
    """A window begins when the client disconnects, however long it was connected."""
    async with open_stage(resume_window_seconds=10) as stage:
        peer = await stage.connect()
        await peer.hello(features=())
        await trio.sleep(1_000)
        await peer.drop()
        await trio.sleep(9)
        await stage.resumed(peer.resume_from())


async def test_failed_attempts_do_not_extend_a_window(autojump_clock: MockClock) -> None:
    """Failed resumes do not extend a window."""
    async with open_stage(resume_window_seconds=100) as stage:
        peer = await stage.welcomed()
        await peer.drop()
        resume = peer.resume_from()
        for _ in range(99):
            await trio.sleep(1)
            await stage.refused(resume | {"resume_token": "rt_wrong"})
            await stage.refused(resume | {"last_event_seq": 7})
            await stage.refused(resume, token=BOB)
        await trio.sleep(1.1)
        assert await forgotten(stage, resume)


async def test_a_welcome_that_was_lost_does_not_extend_a_window_beyond_a_new_one(
    autojump_clock: MockClock,
) -> None:
    """A resume whose client vanished begins the window again, once."""
    async with open_stage(resume_window_seconds=100) as stage:
        peer = await stage.welcomed()
        await peer.drop()
        await trio.sleep(90)
        lost = await stage.resumed(peer.resume_from())
        await lost.drop()
        await trio.sleep(101)
        assert await forgotten(stage, lost.resume_from())
        assert await forgotten(stage, peer.resume_from())


async def test_an_attach_that_has_begun_wins_over_the_window(autojump_clock: MockClock) -> None:
    """A resume that came in time succeeds, even if the window ends during its lookup."""
    async with open_stage(resume_window_seconds=100) as stage:
        peer = await stage.welcomed()
        await peer.drop()
        lookup = stage.store.session

        async def slow_lookup(session_id: str) -> SessionRow | None:
            await trio.sleep(8)
            return await lookup(session_id)

        stage.store.session = slow_lookup  # type: ignore[method-assign]
        await trio.sleep(99)
        second = await stage.resumed(peer.resume_from())
        assert trio.current_time() > 106
        await second.until_terminal((await second.submit("chatty", 1))["job_id"])


async def test_a_resume_that_is_given_up_leaves_the_window_as_it_was(
    autojump_clock: MockClock,
) -> None:
    """A client that vanishes during its lookup neither extends nor ends the window."""
    async with open_stage(resume_window_seconds=100, handshake_seconds=10) as stage:
        peer, other = await stage.welcomed(), await stage.welcomed()
        await peer.drop()
        await other.drop()
        lookup = stage.store.session

        async def stuck_lookup(session_id: str) -> SessionRow | None:
            await trio.sleep_forever()

        stage.store.session = stuck_lookup  # type: ignore[method-assign]
        await trio.sleep(50)
        for gone in (peer, other):
            refused = await stage.refused(gone.resume_from())
            assert (refused["code"], refused["retryable"]) == ("INTERNAL_ERROR", True)
        stage.store.session = lookup  # type: ignore[method-assign]
        await stage.resumed(peer.resume_from())
        await trio.sleep(31)
        assert await forgotten(stage, other.resume_from())


@pytest.mark.spec("6.4-5")
async def test_a_job_outlives_the_window_of_its_session(autojump_clock: MockClock) -> None:
    """A job runs to its end after its session expired, and its outcome is kept."""
    async with open_stage(resume_window_seconds=10) as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("sleeper", 500, idempotency_key="k"))["job_id"]
        await peer.drop()
        await trio.sleep(16)
        assert await forgotten(stage, peer.resume_from())
        assert not stage.store._tables.sessions
        assert scrape(stage.runtime)("jobs", state="running") == 1
        await trio.sleep(500)
        assert not live_jobs(stage.runtime)
        other = await stage.welcomed()
        assert (await other.submit("sleeper", 500, idempotency_key="k"))["job_id"] == job
        assert (await other.until_terminal(job))["payload"]["result"] == "slept"


async def test_a_window_that_ends_during_a_job_leaves_nothing_to_watch(
    autojump_clock: MockClock,
) -> None:
    """A job whose session expired keeps no trace of who watched it."""
    async with open_stage(resume_window_seconds=10, finished_job_seconds=0) as stage:
        peer = await stage.welcomed()
        await peer.submit("puppet")
        await peer.drop()
        await trio.sleep(16)
        await stage.puppet.say("to nobody")
        await stage.puppet.finish()
        await trio.sleep(2 * SWEEP_SECONDS)
        assert not stage.store._tables.journals
        assert not stage.store._tables.sessions
