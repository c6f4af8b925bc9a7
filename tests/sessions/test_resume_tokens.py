"""Each resume token is good once, and no loss on the way costs a session (§6.3)."""

from __future__ import annotations

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import StaticTokens
from arcp_trio.testing.peer import TEST_TOKEN
from tests.footprint import tasks
from tests.inside import MOST_SPARE_DIGESTS, connected_principals
from tests.reading import up_to
from tests.sessions.support import note_comparisons, open_stage
from tests.stage import BOB, hello_payload


@pytest.mark.spec("6.3-1")
async def test_a_token_is_good_once(autojump_clock: MockClock) -> None:
    """Each welcome brings a new token; the one before is refused once a frame came."""
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
    """Until a frame comes under the new token, the one before resumes the session."""
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


async def test_a_rotation_that_is_stored_too_late_costs_nothing(autojump_clock: MockClock) -> None:
    """Clients that gave up waiting for their welcome leave the session resumable."""
    async with open_stage(handshake_seconds=10) as stage:
        peer = await stage.welcomed()
        await peer.submit("puppet")
        await peer.drop()
        await trio.sleep(1)
        before = tasks()
        resume = peer.resume_from()
        stage.store.pause()
        for _ in range(3):
            assert (await stage.refused(resume))["code"] == "INTERNAL_ERROR"
        stage.store.go_on()
        await wait_all_tasks_blocked()
        assert tasks() == before
        assert not connected_principals(stage.runtime)
        second = await stage.resumed(resume)
        await stage.puppet.say("here")
        await second.expect("job.event", event_seq=1)


async def test_resuming_with_the_new_token_is_being_heard(autojump_clock: MockClock) -> None:
    """A resume with the newest token uses up the one before."""
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
    autojump_clock: MockClock, *, restarts: bool
) -> None:
    """An older attempt that comes late does not use up a newer token.

    Every token since the client was last heard resumes the session; then only the newest does.
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
    """Of tokens whose welcomes were lost, the newest are kept, and the one in use."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.drop()
        resume = peer.resume_from()
        for _ in range(3 * MOST_SPARE_DIGESTS):
            peer = await stage.resumed(resume)
            await peer.drop()
        await trio.sleep(1)
        row = await stage.store.session(str(peer.session_id))
        assert row is not None
        assert len(row.spare_digests) == MOST_SPARE_DIGESTS
        await stage.resumed(peer.resume_from())


@pytest.mark.parametrize("frames", [1, 2, 10])
async def test_what_was_sent_before_the_welcome_is_not_being_heard(
    frames: int, autojump_clock: MockClock
) -> None:
    """A frame sent before the welcome was read does not use up the token before."""
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
    """A presented token is compared with every digest of its session, right or wrong."""
    async with open_stage(auth=StaticTokens({TEST_TOKEN: "alice", BOB: "bob"})) as stage:
        peer = await stage.welcomed()
        await peer.drop()
        resume = peer.resume_from()
        compared = note_comparisons(monkeypatch)
        counts = []
        for guess in ("", "rt_", str(peer.resume_token)[:-1], "rt_" + "0" * 64):
            del compared[:]
            await stage.refused(resume | {"resume_token": guess})
            # The bearer token of the hello is compared in the same way.
            counts.append(len([pair for pair in compared if len(pair[0]) == 32]))
        assert set(counts) == {2 + 1}
        await stage.resumed(resume)
