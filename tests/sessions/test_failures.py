"""A fault of the runtime in a session costs that session its connection, and nothing else."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.inside import NUMBERING
from tests.reading import close_code, lines
from tests.sessions.support import open_stage


@contextmanager
def faulty_scribe() -> Generator[None]:
    """Make every scribe fail that has anything to number."""

    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*NUMBERING, fail)
        yield


@pytest.mark.logs_error("session failed")
async def test_a_session_that_fails_can_be_resumed(autojump_clock: MockClock) -> None:
    """A session that fails is closed with 1011, and can be resumed without a gap."""
    async with open_stage() as stage:
        peer, other = await stage.welcomed(), await stage.welcomed()
        job = (await peer.submit("puppet"))["job_id"]
        await stage.puppet.say("one")
        await peer.expect("job.event", job_id=job)
        with faulty_scribe():
            await stage.puppet.say("two")
        await peer.expect("session.error", code="INTERNAL_ERROR")
        assert await close_code(peer) == 1011
        again = await stage.resumed(peer.resume_from())
        await stage.puppet.finish()
        end = await again.until_terminal(job)
        assert end["payload"]["final_status"] == "success"
        assert lines(again.seen) == ["two"]
        await other.submit("sleeper", 0)


@pytest.mark.logs_error("session failed")
async def test_what_a_session_that_failed_still_says_is_stored_in_time(
    autojump_clock: MockClock,
) -> None:
    """A failed session's window begins when its last connection is gone."""
    async with open_stage(resume_window_seconds=1, close_seconds=10) as stage:
        peer = await stage.welcomed()
        await peer.submit("chatty", 200)
        await wait_all_tasks_blocked()  # it does not read, so the farewell does not reach it
        with faulty_scribe():
            await peer.send("job.submit", {"agent": "chatty", "input": 1})
            await wait_all_tasks_blocked()
        await trio.sleep(7)
        await peer.send("session.ack", {"last_processed_seq": 1})
        await wait_all_tasks_blocked()
        await stage.welcomed()
        await trio.sleep(10)
        assert stage.remembered()["sessions"] == 1
