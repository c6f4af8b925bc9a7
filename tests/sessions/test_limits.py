"""The bounds on sessions and connections, and that nothing of them stays behind (§14)."""

from __future__ import annotations

import json
import random
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Limits
from arcp_trio.front.serve import serve_stream
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.transport import memory_streams
from arcp_trio.transport.frames import client_texts
from arcp_trio.wire.errors import InternalError
from arcp_trio.wire.ids import new_id
from tests.footprint import tasks
from tests.inside import connected_principals
from tests.reading import close_code, refusal
from tests.sessions.support import Stage, open_stage
from tests.stage import BOB, hello_payload

# --- sessions


@pytest.mark.spec("14-17", "1.0/14-5")
async def test_connected_sessions_of_a_principal_are_bounded(autojump_clock: MockClock) -> None:
    """A session past `sessions_per_principal` is refused by that name; other principals are not."""
    async with open_stage(sessions_per_principal=3) as stage:
        peers = [await stage.welcomed() for _ in range(3)]
        extra = await stage.connect()
        await extra.send("session.hello", hello_payload())
        refused = await refusal(extra)
        assert (refused["code"], refused["retryable"]) == ("INTERNAL_ERROR", True)
        assert refused["details"] == {"limit": "sessions_per_principal", "max": 3}
        bob = await stage.connect()
        await bob.hello(token=BOB)
        await peers[0].drop()
        await wait_all_tasks_blocked()
        await stage.welcomed()


async def test_a_resume_needs_a_place_as_well(autojump_clock: MockClock) -> None:
    """A resume counts towards the bound, and a refused one can be tried again."""
    async with open_stage(sessions_per_principal=2) as stage:
        parked = await stage.welcomed()
        await parked.drop()
        await wait_all_tasks_blocked()
        peers = [await stage.welcomed() for _ in range(2)]
        for _ in range(3):
            refused = await stage.refused(parked.resume_from())
            assert refused["details"] == {"limit": "sessions_per_principal", "max": 2}
        await peers[0].drop()
        await wait_all_tasks_blocked()
        await stage.resumed(parked.resume_from())


async def test_taking_over_needs_no_place_of_its_own(autojump_clock: MockClock) -> None:
    """At the bound, a session can still be taken over by another connection."""
    async with open_stage(sessions_per_principal=2) as stage:
        peers = [await stage.welcomed() for _ in range(2)]
        for _ in range(5):
            peers = [await stage.resumed(peer.resume_from()) for peer in peers]
        extra = await stage.connect()
        with pytest.raises(InternalError):
            await extra.hello()


async def test_a_place_is_given_back_however_a_client_goes(autojump_clock: MockClock) -> None:
    """However a client leaves, its place is free for the next one."""
    async with open_stage(sessions_per_principal=1, heartbeat_seconds=5) as stage:
        for n in range(100):
            peer = await stage.welcomed(answer_pings=False)
            match n % 5:
                case 0:
                    await peer.drop()
                case 1:
                    await peer.close()
                case 2:
                    await peer.send("session.close")
                    await close_code(peer)
                case 3:
                    await close_code(peer)  # after two silent intervals
                case _:
                    await peer.send("session.resume", {"resume_token": "rt_wrong"})
                    await close_code(peer)
            await wait_all_tasks_blocked()
        assert not connected_principals(stage.runtime)


async def test_parked_sessions_of_a_principal_are_bounded(autojump_clock: MockClock) -> None:
    """Past the bound the session that was parked first is dropped; other principals' stay."""
    async with open_stage(parked_sessions_per_principal=3) as stage:
        bob = await stage.connect()
        await bob.hello(token=BOB)
        await bob.drop()
        await wait_all_tasks_blocked()
        peers = [await stage.welcomed() for _ in range(5)]
        for peer in peers:
            await peer.drop()
            await wait_all_tasks_blocked()
        for peer in peers[:2]:
            assert (await stage.refused(peer.resume_from()))["code"] == "RESUME_WINDOW_EXPIRED"
        for peer in peers[2:]:
            await stage.resumed(peer.resume_from())
        again = await stage.connect()
        await again.hello(token=BOB, resume=bob.resume_from())


async def test_a_session_that_comes_back_is_the_youngest(autojump_clock: MockClock) -> None:
    """The order is by when a session was last parked, not by when it was made."""
    async with open_stage(parked_sessions_per_principal=2) as stage:
        first, second, third = [await stage.welcomed() for _ in range(3)]
        await first.drop()
        await wait_all_tasks_blocked()
        await second.drop()
        await wait_all_tasks_blocked()
        first = await stage.resumed(first.resume_from())
        await first.drop()
        await wait_all_tasks_blocked()
        await third.drop()
        await wait_all_tasks_blocked()
        assert (await stage.refused(second.resume_from()))["code"] == "RESUME_WINDOW_EXPIRED"
        await stage.resumed(first.resume_from())
        await stage.resumed(third.resume_from())


@pytest.mark.parametrize(
    "limit",
    [
        "sessions_per_principal",
        "parked_sessions_per_principal",
        "handshake_seconds",
        "close_seconds",
        "malformed_frames",
        "resume_window_seconds",
        "heartbeat_seconds",
        "inbox_items",
        "outbox_items",
    ],
)
def test_no_bound_can_be_nothing(limit: str) -> None:
    """A bound of zero would block for ever, so it cannot be configured."""
    with pytest.raises(ValueError, match=limit):
        Limits(**{limit: 0})


# --- malformed frames


def malformed(number: int) -> str:
    """Return a frame of a known type with the wrong shape."""
    frame = {"arcp": "1.1", "id": f"bad-{number}", "type": "job.cancel", "payload": {}}
    return json.dumps(frame)


@pytest.mark.parametrize(
    ("text", "request_id"),
    [
        ('{"arcp":"1.1","id":"a","type":"session.nonsense","payload":{}}', "a"),
        ('{"arcp":"1.1","id":"a","type":"job.nonsense","payload":{}}', "a"),
        ('{"arcp":"1.1","id":"a","type":"job.result","payload":{}}', "a"),
        ('{"arcp":"1.1","id":"a","type":"job.cancel","payload":{}}', "a"),
        ('{"arcp":"1.1","id":"a","type":"job.cancel","payload":7}', "a"),
        ('{"arcp":"1.1","id":"a","type":"job.submit","payload":{"agent":7}}', "a"),
        ('{"arcp":"1.1","id":"a","type":"session.ping","payload":{}}', "a"),
        ('{"arcp":"1.1","id":"a","type":"session.ack","payload":{"last_processed_seq":1.5}}', "a"),
        ('{"arcp":"1.1","id":"a","type":"session.ack","payload":{"last_processed_seq":-1}}', "a"),
        ('{"arcp":"1.1","id":"a","type":"session.resume","payload":{}}', "a"),
        ('{"arcp":"3","id":"a","type":"session.ping","payload":{"nonce":"n"}}', "a"),
        ('{"arcp":"1.1","id":"a","payload":{}}', "a"),
        ('{"arcp":"1.1","id":"a","type":"session.ping"}', "a"),
        ('{"arcp":"1.1","id":7,"type":"session.ping","payload":{"nonce":"n"}}', None),
        ("[]", None),
        ("{", None),
        ("", None),
        ('"\\ud800"', None),
        (b'{"arcp":"1.1","id":"a","type":"session.ping","payload":{"nonce":"n"}}', None),
    ],
)
@pytest.mark.spec("12-5")
async def test_a_bad_frame_is_answered_and_the_session_lives(
    text: str | bytes, request_id: str | None, autojump_clock: MockClock
) -> None:
    """A malformed frame is INVALID_REQUEST with its id, if readable, and the session goes on."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.submit("puppet")
        await peer.send_raw(text)
        error = (await peer.expect("session.error"))["payload"]
        assert error["code"] == "INVALID_REQUEST"
        assert error.get("request_id") == request_id
        await stage.puppet.say("as usual")
        await peer.expect("job.event", event_seq=1)


@pytest.mark.spec("5-2")
@pytest.mark.parametrize("kind", ["x-vendor.acme.wave", "greetings", "telemetry.sample"])
async def test_a_frame_of_somebody_elses_is_ignored(kind: str, autojump_clock: MockClock) -> None:
    """A frame of another namespace is ignored without an answer."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.send(kind, {"anything": [1, None, {"goes": True}]}, extra="field")
        await peer.send("session.ping", {"nonce": "n"})
        assert (await peer.receive())["type"] == "session.pong"


async def test_too_many_bad_frames_close_the_connection(autojump_clock: MockClock) -> None:
    """Past `malformed_frames` the connection is closed, and the session can be resumed."""
    async with open_stage(malformed_frames=50) as stage:
        peer = await stage.welcomed()
        await peer.submit("puppet")
        for n in range(50):
            await peer.send_raw(malformed(n))
            await peer.expect("session.error", request_id=f"bad-{n}")
        await peer.send_raw(malformed(50))
        assert await close_code(peer) == 1008
        second = await stage.resumed(peer.resume_from())
        await stage.puppet.say("unharmed")
        await second.expect("job.event", event_seq=1)


async def test_bad_frames_are_counted_in_ten_seconds(autojump_clock: MockClock) -> None:
    """Malformed frames count within ten seconds only."""
    async with open_stage(malformed_frames=50) as stage:
        peer = await stage.connect()
        await peer.hello(features=())
        for n in range(500):
            await peer.send_raw(malformed(n))
            await peer.expect("session.error", request_id=f"bad-{n}")
            await trio.sleep(0.21)
        await peer.send("session.ping", {"nonce": "n"})
        await peer.expect("session.pong")


async def test_bad_frames_count_for_their_connection_only(autojump_clock: MockClock) -> None:
    """A new connection of the session starts its count at zero."""
    async with open_stage(malformed_frames=10) as stage:
        peer = await stage.welcomed()
        for _ in range(5):
            for n in range(10):
                await peer.send_raw(malformed(n))
                await peer.expect("session.error", request_id=f"bad-{n}")
            await peer.drop()
            peer = await stage.resumed(peer.resume_from())


async def test_frames_that_are_refused_for_what_they_ask_are_not_bad(
    autojump_clock: MockClock,
) -> None:
    """Refused requests that are well-formed do not count as malformed."""
    async with open_stage(malformed_frames=1) as stage:
        peer = await stage.welcomed()
        for _ in range(20):
            for kind, payload in (
                ("job.submit", {"agent": "nobody"}),
                ("job.cancel", {"job_id": "job_unknown"}),
                ("session.hello", hello_payload()),
            ):
                request = await peer.send(kind, payload)
                await peer.expect("session.error", request_id=request)


# --- nothing stays behind


async def test_a_thousand_sessions_come_and_go(autojump_clock: MockClock) -> None:
    """Sessions dropped in any state leave no task at once, and no entry after the window."""
    chance = random.Random(1_000)
    async with open_stage(
        resume_window_seconds=100, heartbeat_seconds=5, parked_sessions_per_principal=10_000
    ) as stage:
        before = tasks()
        for _ in range(1_000):
            peer = await stage.welcomed()
            if chance.random() < 0.1:
                await peer.send("job.submit", {"agent": "chatty", "input": 3})
            if chance.random() < 0.5:
                await peer.send("session.ping", {"nonce": "n"})
            for _ in range(chance.randrange(5)):
                await trio.lowlevel.checkpoint()
            await peer.drop()
        await trio.sleep(1)
        assert tasks() == before
        assert stage.remembered()["sessions"] == 1_000
        await trio.sleep(110)
        assert tasks() == before
        assert stage.remembered() == {}


_UPGRADE = (
    b"GET /arcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def opening(*payloads: tuple[str, Frame]) -> bytes:
    """Return all bytes that a client sends to get a session."""
    frames = [
        {"arcp": "1.1", "id": new_id(), "type": kind, "payload": payload}
        for kind, payload in payloads
    ]
    return _UPGRADE + client_texts([json.dumps(frame).encode() for frame in frames])


async def connect_and_vanish(stage: Stage, sent: bytes, moments: int) -> None:
    """Send the beginning of a handshake, let the runtime take some steps, and disconnect."""
    ours, theirs = memory_streams()
    stage.runtime.start_connection(partial(serve_stream, stage.runtime, theirs, "x"), "x")
    await ours.send_all(sent)
    for _ in range(moments):
        await trio.lowlevel.checkpoint()
    await trio.aclose_forcefully(ours)


async def test_a_thousand_handshakes_are_cut_anywhere(autojump_clock: MockClock) -> None:
    """Handshakes that are cut anywhere leave no task, no session and no heartbeat."""
    chance = random.Random(2_000)
    async with open_stage(resume_window_seconds=100, heartbeat_seconds=5) as stage:
        before = tasks()
        whole = opening(("session.hello", hello_payload()), ("session.ping", {"nonce": "n"}))
        for _ in range(1_000):
            cut = len(whole) if chance.random() < 0.6 else chance.randrange(len(whole))
            await connect_and_vanish(stage, whole[:cut], chance.randrange(40))
        await trio.sleep(1)
        assert tasks() == before
        assert not connected_principals(stage.runtime)
        assert stage.remembered()["sessions"] > 100
        await trio.sleep(110)
        assert stage.remembered() == {}


async def test_resumes_that_are_cut_anywhere_cost_the_session_nothing(
    autojump_clock: MockClock,
) -> None:
    """Five hundred resumes that are cut anywhere leave the session to its owner."""
    chance = random.Random(3_000)
    async with open_stage() as stage:
        peer: Peer = await stage.welcomed()
        job = (await peer.submit("puppet"))["job_id"]
        await peer.drop()
        before = tasks()
        resume = peer.resume_from()
        whole = opening(("session.hello", hello_payload() | {"resume": resume}))
        for n in range(500):
            cut = len(whole) if chance.random() < 0.8 else chance.randrange(len(whole))
            await connect_and_vanish(stage, whole[:cut], chance.randrange(40))
            if n % 50 == 0:
                await stage.puppet.say(str(n))
        await trio.sleep(1)
        # The job has tasks; the session, parked again, has none.
        assert tasks() <= before
        second = await stage.resumed(resume)
        await stage.puppet.finish()
        await second.until_terminal(job)
        assert len(stage.recorder.events(job)) == 10
