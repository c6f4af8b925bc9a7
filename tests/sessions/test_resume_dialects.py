"""The three ways in which clients ask for a resume (§6.3)."""

from __future__ import annotations

from typing import Literal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from tests.reading import lines, refusal
from tests.sessions.support import Stage, open_stage
from tests.stage import BOB, hello_payload

Dialect = Literal["block", "flat", "frame", "bare frame", "second frame"]

DIALECTS: tuple[Dialect, ...] = ("block", "flat", "frame", "bare frame", "second frame")


async def ask(stage: Stage, dialect: Dialect, resume: Frame) -> Peer:
    """Connect, and ask for a session in this dialect."""
    peer = await stage.connect()
    flat = {name: resume[name] for name in ("resume_token", "last_event_seq")}
    match dialect:
        case "block":
            await peer.send("session.hello", hello_payload() | {"resume": resume})
        case "flat":
            await peer.send("session.hello", hello_payload() | flat)
        case "frame":
            await peer.send("session.resume", resume)
        case "bare frame":
            await peer.send("session.resume", flat)
        case "second frame":
            await peer.hello()
            await peer.send("session.resume", resume)
    return peer


async def dropped_session(stage: Stage) -> Peer:
    """Return a client that has dropped and missed the second of two events."""
    peer = await stage.welcomed()
    await peer.submit("puppet")
    await stage.puppet.say("seen")
    await peer.expect("job.event")
    await peer.drop()
    await stage.puppet.say("missed")
    return peer


@pytest.mark.spec("6.3-2", "6.3-3", "6.3-1", "1.0/6.3-1", "1.0/6.3-3", "1.0/6.3-4")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_each_dialect_resumes(dialect: Dialect, autojump_clock: MockClock) -> None:
    """Each dialect brings a welcome with a new token, what was missed, and live events."""
    async with open_stage() as stage:
        gone = await dropped_session(stage)
        peer = await ask(stage, dialect, gone.resume_from())
        welcome = await peer.receive()
        assert welcome["type"] == "session.welcome"
        assert welcome["session_id"] == welcome["payload"]["session_id"] == gone.session_id
        assert welcome["payload"]["resume_token"] != gone.resume_token
        await stage.puppet.say("live")
        assert lines([await peer.receive(), await peer.receive()]) == ["missed", "live"]
        await peer.send("session.ping", {"nonce": "heard"})
        await peer.expect("session.pong")
        assert (await stage.refused(gone.resume_from()))["code"] == "RESUME_WINDOW_EXPIRED"


@pytest.mark.spec("6.3-4", "1.0/6.3-5")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_each_dialect_is_refused_in_the_same_words(
    dialect: Dialect, autojump_clock: MockClock
) -> None:
    """A wrong token or place gets the same refusal in each dialect, and burns nothing."""
    async with open_stage() as stage:
        gone = await dropped_session(stage)
        good = gone.resume_from()
        expected = await stage.refused(good | {"resume_token": "rt_wrong"})
        for wrong in ({"resume_token": "rt_wrong"}, {"last_event_seq": 3}, {"last_event_seq": -1}):
            peer = await ask(stage, dialect, good | wrong)
            assert await refusal(peer) == expected
        await stage.resumed(good)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_each_dialect_takes_over_a_live_socket(
    dialect: Dialect, autojump_clock: MockClock
) -> None:
    """In each dialect the token takes the session over from a live connection."""
    async with open_stage() as stage:
        old = await stage.welcomed()
        await old.submit("puppet")
        peer = await ask(stage, dialect, old.resume_from())
        assert (await peer.receive())["session_id"] == old.session_id
        await stage.puppet.say("here")
        await peer.expect("job.event", event_seq=1)


async def test_block_and_flat_fields_may_come_together(autojump_clock: MockClock) -> None:
    """A hello may have the `resume` block and the flat fields."""
    async with open_stage() as stage:
        gone = await dropped_session(stage)
        resume = gone.resume_from()
        peer = await stage.connect()
        await peer.hello(
            resume=resume,
            resume_token=resume["resume_token"],
            last_event_seq=resume["last_event_seq"],
        )
        assert peer.session_id == gone.session_id
        assert lines([await peer.receive()]) == ["missed"]


async def test_without_a_last_number_everything_comes(autojump_clock: MockClock) -> None:
    """A flat token without a number, or with null, replays from the beginning."""
    async with open_stage() as stage:
        gone = await dropped_session(stage)
        peer = await stage.connect()
        payload = hello_payload() | {"resume_token": gone.resume_token, "last_event_seq": 0}
        del payload["last_event_seq"]
        peer._record.resumed(0)
        await peer.send("session.hello", payload)
        await peer.expect("session.welcome", session_id=gone.session_id)
        await peer.expect("job.event", event_seq=1)


# --- session.resume: without a hello


@pytest.mark.spec("6.2-4")
async def test_a_resume_without_a_hello_keeps_what_was_negotiated(
    autojump_clock: MockClock,
) -> None:
    """A `session.resume` alone keeps the session's features and dialect."""
    async with open_stage(heartbeat_seconds=10) as stage:
        plain, beating = await stage.connect(), await stage.connect()
        await plain.hello(features=())
        await beating.hello(features=("heartbeat", "agent_versions"))
        welcomes: list[Frame] = []
        for peer in (plain, beating):
            await peer.drop()
            again = await ask(stage, "frame", peer.resume_from())
            welcomes.append(await again.receive())
        assert "heartbeat_interval_sec" not in welcomes[0]["payload"]
        assert welcomes[1]["payload"]["heartbeat_interval_sec"] == 10
        agents = [welcome["payload"]["capabilities"]["agents"][0] for welcome in welcomes]
        assert isinstance(agents[0], str)
        assert isinstance(agents[1], dict)


@pytest.mark.spec("6.2-3")
async def test_a_resume_with_a_hello_negotiates_anew(autojump_clock: MockClock) -> None:
    """The features of a resuming hello are in effect from then on."""
    async with open_stage() as stage:
        peer = await stage.connect()
        await peer.hello(features=())
        await peer.drop()
        again = await stage.connect()
        welcome = await again.hello(features=("heartbeat",), resume=peer.resume_from())
        assert "heartbeat_interval_sec" in welcome["payload"]
        await again.drop()
        third = await ask(stage, "frame", again.resume_from())
        assert "heartbeat_interval_sec" in (await third.receive())["payload"]


@pytest.mark.parametrize("auth", [{"scheme": "bearer", "token": "wrong"}, {"scheme": "none"}, {}])
async def test_a_resume_that_authenticates_must_do_it_right(
    auth: Frame, autojump_clock: MockClock
) -> None:
    """A `session.resume` needs no auth, but one with auth is checked."""
    async with open_stage() as stage:
        gone = await dropped_session(stage)
        peer = await stage.connect()
        await peer.send("session.resume", gone.resume_from() | {"auth": auth})
        assert (await refusal(peer))["code"] == "UNAUTHENTICATED"
        await stage.resumed(gone.resume_from())


async def test_a_resume_that_authenticates_as_somebody_else_is_foreign(
    autojump_clock: MockClock,
) -> None:
    """A resume with another principal's auth is refused, whatever its token."""
    async with open_stage() as stage:
        gone = await dropped_session(stage)
        expected = await stage.refused(gone.resume_from() | {"resume_token": "rt_wrong"})
        peer = await stage.connect()
        auth = {"scheme": "bearer", "token": BOB}
        await peer.send("session.resume", gone.resume_from() | {"auth": auth})
        assert await refusal(peer) == expected
        await stage.resumed(gone.resume_from())


@pytest.mark.parametrize(
    "payload", [{}, {"resume_token": None}, {"resume_token": 7}, {"last_event_seq": 1}]
)
async def test_a_resume_of_nothing_is_malformed(payload: Frame, autojump_clock: MockClock) -> None:
    """A resume without a token is refused, and the answer names what is missing."""
    async with open_stage() as stage:
        peer = await stage.connect()
        await peer.send("session.resume", payload)
        error = await refusal(peer)
        assert error["code"] == "INVALID_REQUEST"
        assert "resume_token" in error["message"]


# --- session.resume after a hello


async def test_the_session_left_for_another_is_gone(autojump_clock: MockClock) -> None:
    """A fresh session that is exchanged for another by a resume is dropped."""
    async with open_stage() as stage:
        gone = await dropped_session(stage)
        peer = await stage.welcomed()
        fresh = peer.resume_from()
        await peer.send("session.resume", gone.resume_from())
        await peer.expect("session.welcome", session_id=gone.session_id)
        assert (await stage.refused(fresh))["code"] == "RESUME_WINDOW_EXPIRED"
        await peer.drop()
        await wait_all_tasks_blocked()
        assert len(stage.store._tables.sessions) == 1


async def test_pings_and_acks_may_come_before(autojump_clock: MockClock) -> None:
    """A session with only pings and acks is still fresh, even after an idle hour."""
    async with open_stage() as stage:
        gone = await dropped_session(stage)
        peer = await stage.connect()
        await peer.hello(features=("ack",))
        await peer.send("session.ack", {"last_processed_seq": 0})
        await peer.send("session.ping", {"nonce": "n"})
        await peer.expect("session.pong")
        await trio.sleep(500)
        await peer.send("session.resume", gone.resume_from())
        await peer.expect("session.welcome", session_id=gone.session_id)
        assert lines([await peer.receive()]) == ["missed"]


async def test_another_principal_cannot_resume_behind_its_own_hello(
    autojump_clock: MockClock,
) -> None:
    """After its own hello, a principal cannot resume another's session."""
    async with open_stage() as stage:
        gone = await dropped_session(stage)
        expected = await stage.refused(gone.resume_from() | {"resume_token": "rt_wrong"})
        thief = await stage.connect()
        await thief.hello(token=BOB)
        await thief.send("session.resume", gone.resume_from())
        assert await refusal(thief) == expected
        await stage.resumed(gone.resume_from())


async def test_a_session_at_work_is_not_exchanged(autojump_clock: MockClock) -> None:
    """After a request, a resume on the same connection is refused, and both sessions live."""
    async with open_stage() as stage:
        gone = await stage.welcomed()
        await gone.drop()
        peer = await stage.welcomed()
        await peer.submit("puppet")
        request = await peer.send("session.resume", gone.resume_from())
        error = await peer.expect("session.error", request_id=request)
        assert error["payload"]["code"] == "INVALID_REQUEST"
        await stage.puppet.say("still here")
        await peer.expect("job.event")
        await stage.resumed(gone.resume_from())


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_resumed_session_is_not_exchanged(
    dialect: Dialect, autojump_clock: MockClock
) -> None:
    """A second resume of the same session on its connection is refused without loss."""
    async with open_stage() as stage:
        gone = await dropped_session(stage)
        peer = await ask(stage, dialect, gone.resume_from())
        await peer.expect("session.welcome", session_id=gone.session_id)
        request = await peer.send("session.resume", gone.resume_from())
        error = await peer.expect("session.error", request_id=request)
        assert error["payload"]["code"] == "INVALID_REQUEST"
        await stage.puppet.say("live")
        assert lines([*peer.seen, await peer.receive()]) == ["missed", "live"]
        await peer.drop()
        await stage.resumed(peer.resume_from())


async def test_the_whole_story_in_one_burst(autojump_clock: MockClock) -> None:
    """Of hello, resume and submit in one burst, the submit is the resumed session's."""
    async with open_stage() as stage:
        gone = await dropped_session(stage)
        peer = await stage.connect()
        await peer.send("session.hello", hello_payload())
        await peer.send("session.resume", gone.resume_from())
        submit = await peer.send("job.submit", {"agent": "chatty", "input": 0})
        accepted = await peer.answer("job.accepted", submit)
        assert peer.session_id == gone.session_id
        await peer.until_terminal(accepted["job_id"])
