"""Coming back: what is replayed, who may, and what a failure costs (§6.3)."""

from __future__ import annotations

import hmac
import random
from contextlib import suppress

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.runtime.handshake import MOST_SPARE_TOKENS
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.transport import TransportClosed
from arcp_trio.wire.json import JsonObject
from tests.sessions.support import (
    OTHER_TOKEN,
    Stage,
    close_code,
    hello_payload,
    lines,
    open_stage,
)


async def raw_replay(stage: Stage, resume: JsonObject, count: int) -> tuple[Peer, list[str]]:
    """Resume, and return the texts of so many frames behind the welcome, as they were sent."""
    peer = await stage.resumed(resume)
    texts = [await peer.transport.receive() for _ in range(count)]
    assert all(isinstance(text, str) for text in texts)
    return peer, [str(text) for text in texts]


async def up_to(peer: Peer, seq: int) -> list[Frame]:
    """Receive until the frame with this number."""
    frames = [await peer.receive()]
    while frames[-1].get("event_seq") != seq:
        frames.append(await peer.receive())
    return frames


# --- what comes back


@pytest.mark.spec("6.3-2", "6.3-3", "8.3-1", "1.0/6.3-1", "1.0/6.3-2", "1.0/6.3-4")
async def test_what_was_missed_then_what_is_live_then_the_end(autojump_clock: MockClock) -> None:
    """Each event comes once: seen before, missed while away, live, terminal."""
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
    """The terminal is an event like any other, also when the job ended with nobody there."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("sleeper", 30))["job_id"]
        await peer.drop()
        await trio.sleep(60)
        assert not stage.runtime._core.jobs.live
        second = await stage.resumed(peer.resume_from())
        frames = await up_to(second, 3)
        assert lines(frames) == ["asleep", "awake"]
        assert (frames[-1]["type"], frames[-1]["job_id"]) == ("job.result", job)


async def test_a_client_that_missed_nothing_is_sent_nothing(autojump_clock: MockClock) -> None:
    """Resuming from the latest number is a success without a replay of events."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("chatty", 3))["job_id"]
        await peer.until_terminal(job)
        await peer.drop()
        second = await stage.resumed(peer.resume_from())
        await second.send("session.ping", {"nonce": "n"})
        assert (await second.receive())["type"] == "session.pong"


async def test_a_session_without_events_resumes_from_zero(autojump_clock: MockClock) -> None:
    """There need not be anything to resume for a session to be resumed, many times over."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        for _ in range(5):
            await peer.drop()
            peer = await stage.resumed(peer.resume_from())
        job = (await peer.submit("chatty", 1))["job_id"]
        await peer.until_terminal(job)


@pytest.mark.spec("6.3-3")
async def test_a_replay_is_the_same_every_time(autojump_clock: MockClock) -> None:
    """Byte for byte: numbers, ids and bodies, the acceptance and the terminal included."""
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
    """From any number that was taken, exactly the numbers after it come."""

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
    """A submit whose answer was lost with the connection is answered by the resume."""
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
    """Who presents a number behind it does not get the acceptance again."""
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
    """The welcome comes at once, and ten tails' worth of events behind it, in order."""
    async with open_stage(outbox_items=10, tail_frames=50, tail_bytes=50_000) as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("chatty", 2_000))["job_id"]
        await peer.drop()
        await trio.sleep(1)
        for _ in range(2):  # the first numbers what is owed, the second replays what has numbers
            started = trio.current_time()
            peer = await stage.resumed(peer.resume_from() | {"last_event_seq": 0})
            assert trio.current_time() - started < 1
            assert (await peer.until_terminal(job))["event_seq"] == 2_001
            await peer.drop()


@pytest.mark.spec("7.4-1")
async def test_a_resumed_session_may_cancel_its_jobs(autojump_clock: MockClock) -> None:
    """Authority over a job survives the connection it was submitted on."""
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
    """Dropped wherever it happens to be, over and over, a client reads 1 to N, each once."""
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


# --- tokens


@pytest.mark.spec("6.3-1")
async def test_a_token_is_good_once(autojump_clock: MockClock) -> None:
    """Each welcome brings a new one; the one before is refused once the client was heard."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        used = peer.resume_from()
        await peer.drop()
        second = await stage.resumed(used)
        assert second.resume_token != peer.resume_token
        await second.send("session.ping", {"nonce": "heard"})
        await second.expect("session.pong")
        await second.drop()
        assert (await stage.refused(used))["code"] == "RESUME_WINDOW_EXPIRED"
        await stage.resumed(second.resume_from())


async def test_a_welcome_that_was_lost_costs_nothing(autojump_clock: MockClock) -> None:
    """Until the client is heard under the new token, the one before opens the session."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.submit("puppet")
        await stage.puppet.say("1", "2")
        await up_to(peer, 1)
        await peer.drop()
        resume = peer.resume_from()
        for _ in range(5):
            lost = await stage.connect()
            await lost.send("session.hello", hello_payload() | {"resume": resume})
            await wait_all_tasks_blocked()
            await lost.drop()  # the welcome is in the pipe, and never read
        second = await stage.resumed(resume)
        assert (await second.receive())["event_seq"] == 2
        await second.send("session.ping", {"nonce": "heard"})
        await second.expect("session.pong")
        assert (await stage.refused(resume))["code"] == "RESUME_WINDOW_EXPIRED"


async def test_a_rotation_that_is_stored_too_late_costs_nothing(
    autojump_clock: MockClock,
) -> None:
    """Clients that gave up waiting for their welcome leave the session as it was for the next."""
    async with open_stage(handshake_seconds=10) as stage:
        peer = await stage.welcomed()
        await peer.submit("puppet")
        await peer.drop()
        await trio.sleep(1)
        before = trio.lowlevel.current_statistics().tasks_living
        resume = peer.resume_from()
        stage.store.pause()
        for _ in range(3):
            assert (await stage.refused(resume))["code"] == "UNAUTHENTICATED"
        stage.store.go_on()
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert not stage.runtime._core.sessions._connected
        second = await stage.resumed(resume)
        await stage.puppet.say("here")
        await second.expect("job.event", event_seq=1)


async def test_resuming_with_the_new_token_is_being_heard(autojump_clock: MockClock) -> None:
    """A client that presents its newest token has it, so the one before is used up."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        oldest = peer.resume_from()
        await peer.drop()
        second = await stage.resumed(oldest)
        await second.drop()
        third = await stage.resumed(second.resume_from())
        await third.drop()
        assert (await stage.refused(oldest))["code"] == "RESUME_WINDOW_EXPIRED"


@pytest.mark.parametrize("restarts", [False, True], ids=["awake", "parked"])
async def test_an_abandoned_attempt_does_not_cost_the_newest_token(
    autojump_clock: MockClock,
    *,
    restarts: bool,
) -> None:
    """An older attempt that comes in late takes nothing from a client that has its welcome.

    Every token issued since the client was last heard opens the session; then only the newest does.
    """
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.drop()
        oldest = peer.resume_from()
        newer = await stage.resumed(oldest)
        late = await stage.connect()
        await late.send("session.hello", hello_payload() | {"resume": oldest})
        await wait_all_tasks_blocked()
        await late.drop()
        if restarts:
            await trio.sleep(1)
        again = await stage.resumed(newer.resume_from())
        assert (await stage.refused(oldest))["code"] == "RESUME_WINDOW_EXPIRED"
        await again.send("session.ping", {"nonce": "heard"})
        await again.expect("session.pong")
        await again.drop()
        for used in (oldest, newer.resume_from()):
            assert (await stage.refused(used))["code"] == "RESUME_WINDOW_EXPIRED"
        await stage.resumed(again.resume_from())


async def test_lost_welcomes_do_not_pile_up(autojump_clock: MockClock) -> None:
    """Of the tokens that nobody may ever have read, the newest are kept, and the one in use."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.drop()
        resume = peer.resume_from()
        for _ in range(3 * MOST_SPARE_TOKENS):
            peer = await stage.resumed(resume)
            await peer.drop()
        await trio.sleep(1)
        row = await stage.store.session(str(peer.session_id))
        assert row is not None
        assert len(row.spare_tokens) == MOST_SPARE_TOKENS
        await stage.resumed(peer.resume_from())


@pytest.mark.parametrize("frames", [1, 2, 10])
async def test_what_was_sent_before_the_welcome_is_not_being_heard(
    frames: int, autojump_clock: MockClock
) -> None:
    """A client that does not wait for its welcome has not read it: the token before stays good."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.drop()
        resume = peer.resume_from()
        hello = {"arcp": "1.1", "id": "h", "type": "session.hello"}
        payload = hello_payload() | {"resume": resume}
        texts = [msgspec.json.encode(hello | {"payload": payload})]
        for n in range(frames):
            ping = {"arcp": "1.1", "id": f"p{n}", "type": "session.ping", "payload": {"nonce": "n"}}
            texts.append(msgspec.json.encode(ping))
        eager = await stage.connect()
        await eager.transport.send(texts)
        await wait_all_tasks_blocked()
        await eager.drop()  # the welcome is in the pipe, and never read
        again = await stage.resumed(resume)
        await again.send("session.ping", {"nonce": "heard"})
        await again.expect("session.pong")
        await again.drop()
        assert (await stage.refused(resume))["code"] == "RESUME_WINDOW_EXPIRED"


async def test_tokens_are_compared_by_digest_in_constant_time(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A token presented for a session meets each of its tokens' digests, right or wrong."""
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def spy(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.drop()
        resume = peer.resume_from()
        monkeypatch.setattr(hmac, "compare_digest", spy)
        counts = []
        for guess in ("", "rt_", str(peer.resume_token)[:-1], "rt_" + "0" * 64):
            del compared[:]
            await stage.refused(resume | {"resume_token": guess})
            # The bearer token of the hello is compared in the same way.
            counts.append(len([pair for pair in compared if len(pair[0]) == 32]))
        assert set(counts) == {2 + 1}
        await stage.resumed(resume)


# --- failed attempts


@pytest.mark.spec("6.3-4", "1.0/6.3-5")
async def test_all_failures_are_the_same_failure(autojump_clock: MockClock) -> None:
    """Unknown, expired, foreign and used tokens and places out of range: one answer."""
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
        answers["foreign"] = await stage.refused(good, token=OTHER_TOKEN)
        expected = answers["unknown token"]
        assert expected["code"] == "RESUME_WINDOW_EXPIRED"
        assert expected["retryable"] is False
        assert answers == dict.fromkeys(answers, expected)
        await stage.resumed(good | {"last_event_seq": 50})


async def test_a_failed_attempt_burns_nothing(autojump_clock: MockClock) -> None:
    """Whoever fails, however often, the owner resumes with the token it has."""
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
                await stage.refused(attempt, token=OTHER_TOKEN)
        await stage.refused(good, token=OTHER_TOKEN)
        second = await stage.resumed(good)
        await stage.puppet.say("still mine")
        assert lines(await up_to(second, 1)) == ["still mine"]


async def test_a_failed_attempt_leaves_a_live_socket_alone(autojump_clock: MockClock) -> None:
    """A resume that is refused does not cost the session its connection."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.submit("puppet")
        good = peer.resume_from()
        await stage.refused(good | {"resume_token": "rt_wrong"})
        await stage.refused(good, token=OTHER_TOKEN)
        await stage.refused(good | {"last_event_seq": 99})
        await stage.refused(good | {"last_event_seq": -1})
        await stage.puppet.say("undisturbed")
        assert lines([await peer.receive()]) == ["undisturbed"]


# --- taking over


async def test_a_socket_that_looks_alive_is_taken_over(autojump_clock: MockClock) -> None:
    """The new connection gets the session at once; the old one is closed and acts no more."""
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
    """With its tail full to the brim, the session goes on elsewhere within close_seconds."""
    async with open_stage(tail_frames=20, tail_bytes=20_000, close_seconds=2) as stage:
        stuck = await stage.welcomed()
        resume = stuck.resume_from()
        job = (await stuck.submit("chatty", 1_000))["job_id"]
        # Answers that find no room make the session's commands wait as well.
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
    """Inbox, outbox and tail all full: a resume gets past them within close_seconds."""
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
    """All may be let in, one after the other; whoever was last has it, the others are closed."""
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
    """Whether this peer has the session: the others are closed, with or without a welcome."""
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
    """A frame on a connection that is being replaced is not being heard under the new token."""
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
        # Nobody reads a welcome, so the token everybody had is all that anybody has.
        await first.drop()
        await second.drop()
        await trio.sleep(1)
