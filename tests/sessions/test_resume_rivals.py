"""Resumes that fail, and sessions that are taken over (§6.3)."""

from __future__ import annotations

import logging
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.testing import Peer
from arcp_trio.transport import TransportClosed
from tests.reading import close_code, lines, up_to
from tests.sessions.support import open_stage
from tests.stage import BOB, hello_payload

# --- failed attempts


@pytest.mark.spec("6.3-4", "1.0/6.3-5")
async def test_all_failures_are_the_same_failure(autojump_clock: MockClock) -> None:
    """Unknown, expired, foreign and used tokens and wrong places get one answer."""
    async with open_stage(resume_window_seconds=100) as stage:
        gone = await stage.welcomed()
        await gone.drop()
        await trio.sleep(101)
        peer = await stage.welcomed()
        used = peer.resume_from()
        job = (await peer.submit("chatty", 60))["job_id"]
        await peer.until_terminal(job)
        await peer.send("session.ack", {"last_processed_seq": 50})
        await peer.drop()
        peer = await stage.resumed(peer.resume_from())
        await peer.send("session.ping", {"nonce": "heard"})
        await peer.expect("session.pong")
        await peer.drop()
        good = peer.resume_from()
        assert good["last_event_seq"] == 61
        attempts = {
            "unknown token": good | {"resume_token": "rt_" + "0" * 64},
            "no token": good | {"resume_token": ""},
            "unknown session": good | {"session_id": "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV"},
            "expired": gone.resume_from(),
            "used": used,
            "future": good | {"last_event_seq": 62},
            "far future": good | {"last_event_seq": 2**63 - 1},
            "negative": good | {"last_event_seq": -1},
            "before the window": good | {"last_event_seq": 49},
            "zero": good | {"last_event_seq": 0},
        }
        answers = {name: await stage.refused(resume) for name, resume in attempts.items()}
        answers["foreign"] = await stage.refused(good, token=BOB)
        expected = answers["unknown token"]
        assert expected["code"] == "RESUME_WINDOW_EXPIRED"
        assert expected["retryable"] is False
        assert answers == dict.fromkeys(answers, expected)
        await stage.resumed(good | {"last_event_seq": 50})


async def test_a_failed_attempt_burns_nothing(autojump_clock: MockClock) -> None:
    """However often others fail, the owner can resume with its token."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.submit("puppet")
        await peer.drop()
        good = peer.resume_from()
        for attempt in (
            good | {"resume_token": "rt_wrong"},
            good | {"last_event_seq": 99},
            good | {"last_event_seq": -1},
        ):
            for _ in range(5):
                await stage.refused(attempt)
                await stage.refused(attempt, token=BOB)
        await stage.refused(good, token=BOB)
        second = await stage.resumed(good)
        await stage.puppet.say("still mine")
        assert lines(await up_to(second, 1)) == ["still mine"]


async def test_a_failed_attempt_leaves_a_parked_session_parked(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused resume does not wake the session, and so does not have it parked again."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        with caplog.at_level(logging.DEBUG, "arcp_trio.runtime.session"):
            await peer.drop()
            await wait_all_tasks_blocked()
            good = peer.resume_from()
            await stage.refused(good | {"resume_token": "rt_wrong"})
            await stage.refused(good, token=BOB)
            await stage.refused(good | {"last_event_seq": 99})
            await wait_all_tasks_blocked()
        assert caplog.messages.count("session parked") == 1
        await stage.resumed(good)


async def test_a_failed_attempt_leaves_a_live_socket_alone(autojump_clock: MockClock) -> None:
    """A refused resume does not end the session's connection."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.submit("puppet")
        good = peer.resume_from()
        await stage.refused(good | {"resume_token": "rt_wrong"})
        await stage.refused(good, token=BOB)
        await stage.refused(good | {"last_event_seq": 99})
        await stage.refused(good | {"last_event_seq": -1})
        await stage.puppet.say("undisturbed")
        assert lines([await peer.receive()]) == ["undisturbed"]


# --- taking over


async def test_a_socket_that_looks_alive_is_taken_over(autojump_clock: MockClock) -> None:
    """A new connection gets the session at once, and the old one is closed."""
    async with open_stage() as stage:
        old = await stage.welcomed()
        job = (await old.submit("puppet"))["job_id"]
        started = trio.current_time()
        new = await stage.resumed(old.resume_from())
        assert trio.current_time() == started
        assert await close_code(old) == 1000
        with pytest.raises(TransportClosed):
            await old.send("job.cancel", {"job_id": job})
        await stage.puppet.say("for the new one")
        assert lines(await up_to(new, 1)) == ["for the new one"]
        assert not lines(old.seen)


async def test_a_client_that_does_not_read_can_be_taken_over(autojump_clock: MockClock) -> None:
    """A session at its bound of unsent frames can be taken over within `close_seconds`."""
    async with open_stage(tail_frames=20, tail_bytes=20_000, close_seconds=2) as stage:
        stuck = await stage.welcomed()
        resume = stuck.resume_from()
        job = (await stuck.submit("chatty", 1_000))["job_id"]
        # Answers without room make the session's commands wait, too.
        for _ in range(5):
            await stuck.send("job.submit", {"agent": "nobody"})
        await wait_all_tasks_blocked()
        started = trio.current_time()
        new = await stage.resumed(resume)
        assert trio.current_time() - started <= 2
        assert (await new.until_terminal(job))["event_seq"] == 1_001


async def test_commands_that_wait_do_not_keep_a_session_from_being_resumed(
    autojump_clock: MockClock,
) -> None:
    """With inbox, outbox and unsent frames full, a resume succeeds within `close_seconds`."""
    async with open_stage(tail_frames=5, outbox_items=5, inbox_items=5) as stage:
        stuck = await stage.welcomed()
        resume = stuck.resume_from()
        job = (await stuck.submit("chatty", 500))["job_id"]
        async with trio.open_nursery() as nursery:

            async def pester() -> None:
                with suppress(TransportClosed):
                    while True:
                        await stuck.send("session.no_such_thing", {"pad": "x" * 1_000})

            nursery.start_soon(pester)
            await wait_all_tasks_blocked()
            started = trio.current_time()
            new = await stage.resumed(resume)
            assert trio.current_time() - started <= 2
            assert (await new.until_terminal(job))["event_seq"] == 501


@pytest.mark.parametrize("parked", [True, False])
async def test_of_racing_resumes_one_has_the_session(
    parked: bool,  # noqa: FBT001
    autojump_clock: MockClock,
) -> None:
    """Of racing resumes the last that was let in has the session; the others are closed."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("puppet"))["job_id"]
        if parked:
            await peer.drop()
            await trio.sleep(1)
        resume = peer.resume_from()
        rivals = [await stage.connect() for _ in range(8)]
        async with trio.open_nursery() as nursery:
            for rival in rivals:
                nursery.start_soon(
                    rival.send, "session.hello", hello_payload() | {"resume": resume}
                )
        await wait_all_tasks_blocked()
        await stage.puppet.say("to one of you")
        await stage.puppet.finish()
        endings = [await outcome(rival) for rival in rivals]
        assert endings.count("has it") == 1
        assert set(endings) <= {"has it", "closed", "refused"}
        assert stage.recorder.terminal(job)
        winner = rivals[endings.index("has it")]
        await winner.drop()
        await stage.resumed(winner.resume_from())


async def outcome(peer: Peer) -> str:
    """Return whether this client has the session; the others are closed."""
    with trio.move_on_after(5):
        try:
            while True:
                frame = await peer.receive()
                peer.seen.append(frame)
                if frame["type"] == "session.error":
                    return "refused"
        except TransportClosed:
            return "closed"
    assert lines(peer.seen) == ["to one of you"]
    return "has it"


async def test_what_a_rival_says_does_not_use_up_the_token_of_the_next(
    autojump_clock: MockClock,
) -> None:
    """A frame of a connection that is being replaced does not use up older tokens."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.drop()
        resume = peer.resume_from()
        first, second = await stage.connect(), await stage.connect()
        ping = {"nonce": "n"}
        async with trio.open_nursery() as nursery:
            for rival in (first, second):
                nursery.start_soon(
                    rival.send, "session.hello", hello_payload() | {"resume": resume}
                )
        for rival in (first, second):
            await rival.transport.send([b'{"arcp":"1.1","id":"x","type":"session.ping"}'])
        del ping
        await wait_all_tasks_blocked()
        # None of them reads its welcome, so all of them have only the first token.
        await first.drop()
        await second.drop()
        await trio.sleep(1)
