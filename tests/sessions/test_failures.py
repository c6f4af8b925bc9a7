"""A fault of the runtime in a session costs that session its connection, and nothing else."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.testing import Peer
from tests.inside import NUMBERING, SENDING, SENDING_AT_ONCE, Place
from tests.metrics import scrape
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


@contextmanager
def faulty_writes(place: Place, part: bytes) -> Generator[None]:
    """Make the runtime's writes of frames with this part fail, here."""
    owner, name = place
    write = getattr(owner, name)

    def fail(outgoing: object, texts: Sequence[bytes]) -> Any:
        if any(part in text for text in texts):
            raise RuntimeError("a fault")
        return write(outgoing, texts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*place, fail)
        yield


@pytest.mark.logs_error("connection failed")
@pytest.mark.parametrize("place", [SENDING_AT_ONCE, SENDING], ids=["the step", "the task"])
async def test_a_connection_that_fails_as_it_sends_ends_alone(
    place: Place, autojump_clock: MockClock
) -> None:
    """A fault of a write ends the connection with 1011, and not the session whose events it has."""
    async with open_stage() as stage:
        peer, other = await stage.welcomed(), await stage.welcomed()
        job = (await peer.submit("puppet"))["job_id"]
        await stage.puppet.say("one")
        if place == SENDING:
            await fill_the_pipe(peer)
        with faulty_writes(place, b'"two"'), trio.fail_after(60):
            await stage.puppet.say("two")
            assert await close_code(peer) == 1011
        await stage.puppet.say("three")
        again = await stage.resumed(peer.resume_from())
        await stage.puppet.finish()
        end = await again.until_terminal(job)
        assert end["payload"]["final_status"] == "success"
        said = [event["payload"]["body"]["message"] for event in stage.recorder.events(job)]
        assert said == ["one", "two", "three"]
        assert scrape(stage.runtime)("connection_failures_total", reason="fault") == 1
        await other.submit("sleeper", 0)


async def fill_the_pipe(peer: Peer) -> None:
    """Have so much sent to a client that does not read that writes have to wait."""
    await peer.send("job.submit", {"agent": "chatty", "input": 300})
    await wait_all_tasks_blocked()
