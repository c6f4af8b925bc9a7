"""Rotation: the submitter is told the new value, and the old key is revoked (§9.8.2)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs
import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Credential, CredentialOrder, InternalError, Issued, JobContext, Json
from arcp_trio.testing import Peer, PeerFactory, open_peer, open_peers
from arcp_trio.testing.frames import Frame
from tests.credentials.runtimes import LEASE, SafeStore, provided, providing_runtime
from tests.credentials.upstream import SECRET, Upstream, down
from tests.metrics import scrape
from tests.stage import AUDITOR


def is_rotation(frame: Frame) -> bool:
    """Return whether a frame tells a new value."""
    body = frame["payload"].get("body", {})
    return bool(frame["type"] == "job.event" and body.get("phase") == "credential_rotated")


async def rotations(peer: Peer, job_id: str) -> list[Frame]:
    """Return what the job has told about rotations, up to its end."""
    await peer.until_terminal(job_id)
    assert peer.session_id is not None
    events = peer.recorder.events(job_id, session_id=peer.session_id)
    return [event for event in events if is_rotation(event)]


@pytest.mark.spec("9.8.2-7", "9.8.2-8", "9.8.1-1")
async def test_a_rotation_replaces_value_and_key(autojump_clock: MockClock) -> None:
    """The event has id and new value; the new key is alive and the old one revoked."""
    upstream = Upstream(slow_revoke=0.1)
    async with provided(upstream) as (_, peer):
        job = {"times": 1, "sleep": 5}
        accepted = await peer.submit("rotator", job, lease_request=LEASE)
        (before,) = accepted["credentials"]
        event = await peer.expect("job.event", kind="status")
        body = event["payload"]["body"]
        assert body["phase"] == "credential_rotated"
        assert body["id"] == before["id"]
        assert body["value"] == upstream.keys["vk_2"].value != before["value"]
        assert body.keys() == {"phase", "id", "value"}
        await trio.sleep(0.2)
        assert upstream.live == {"vk_2"}
        end = await peer.until_terminal(accepted["job_id"])
        assert end["payload"]["result"] == [before["id"]]
        assert upstream.live == set()


@pytest.mark.spec("9.8.2-4", "9.8.2-8")
@pytest.mark.parametrize("rotates", [1, 2])
async def test_nothing_is_left_of_many_rotations(rotates: int, autojump_clock: MockClock) -> None:
    """After three rotations with one key or two, no key outlives the job."""
    upstream, store = Upstream(rotates=rotates), SafeStore()
    async with provided(upstream, store) as (_, peer):
        accepted = await peer.submit("rotator", {"times": 3, "sleep": 5}, lease_request=LEASE)
        await trio.sleep(5)
        assert len(upstream.live) == 1 + 3 * (rotates - 1)
        told = await rotations(peer, accepted["job_id"])
        ids = [event["payload"]["body"]["id"] for event in told]
        assert len(ids) == 3 * rotates
        # The first of each replaces the one that was there, the others are new.
        assert ids[::rotates] == [accepted["credentials"][0]["id"]] * 3
        assert len(set(ids)) == 1 + 3 * (rotates - 1)
        values = [event["payload"]["body"]["value"] for event in told]
        assert len(set(values)) == len(values)
        assert len(upstream.keys) == 1 + 3 * rotates
        assert upstream.live == set()
    assert store.credentials == []


async def test_a_rotation_and_the_end_right_behind_it(autojump_clock: MockClock) -> None:
    """A rotation right before the agent's return is told to the client."""
    upstream = Upstream()
    async with provided(upstream) as (_, peer):
        accepted = await peer.submit("rotator", {"times": 1}, lease_request=LEASE)
        (event,) = await rotations(peer, accepted["job_id"])
        assert event["payload"]["body"]["value"] == upstream.keys["vk_2"].value
        assert upstream.live == set()


@pytest.mark.parametrize("trouble", ["nothing", "down", "fails behind it", "silent", "unusable"])
async def test_a_rotation_that_fails_changes_nothing(
    trouble: str, autojump_clock: MockClock
) -> None:
    """After a failed rotation the old value is good, and no other key is alive."""
    upstream, store = Upstream(), SafeStore()
    runtime = providing_runtime(upstream, store)
    seen: list[list[Credential]] = []

    @runtime.agent("trier")
    async def trier(job: JobContext) -> Json:
        """Try to rotate, look at the credential, and try again."""
        (old,) = job.credentials
        await trio.sleep(1)
        with pytest.raises(InternalError):
            await job.rotate(old.id)
        seen.append(job.credentials)
        await trio.sleep(30)
        upstream.failing = upstream.failing_after = down()
        upstream.slow_answer, upstream.rotates = 0, 1
        upstream.extra.clear()
        new = await job.rotate(old.id)
        seen.append([new])

    match trouble:
        case "nothing":
            upstream.rotates = 0
        case "down":
            upstream.failing = down("rotate")
        case "fails behind it":
            upstream.failing_after = down("rotate")
        case _:
            pass
    async with runtime, open_peer(runtime) as peer:
        await peer.hello()
        accepted = await peer.submit("trier", lease_request=LEASE)
        if trouble == "silent":
            upstream.slow_answer = 60
        elif trouble == "unusable":
            upstream.extra["expires_at"] = "tomorrow"
        await trio.sleep(25)
        (old,) = accepted["credentials"]
        assert [credential.wire() for credential in seen[0]] == [old]
        assert upstream.live_values == {old["value"]}
        (event,) = await rotations(peer, accepted["job_id"])
        assert event["payload"]["body"]["value"] == seen[1][0].value
        assert upstream.live == set()
        await trio.sleep(15)
    assert store.credentials == []


async def test_the_same_key_with_another_value_stays_alive(autojump_clock: MockClock) -> None:
    """A rotation that keeps the key's handle does not revoke it."""

    class InPlace(Upstream):
        async def rotate(self, order: CredentialOrder, handle: str) -> Sequence[Issued]:
            (issued,) = await super().rotate(order, handle)
            self.keys[handle] = attrs.evolve(self.keys.pop(issued.handle), handle=handle)
            return [attrs.evolve(issued, handle=handle)]

    upstream, store = InPlace(), SafeStore()
    async with provided(upstream, store) as (_, peer):
        accepted = await peer.submit("rotator", {"times": 1, "sleep": 5}, lease_request=LEASE)
        await trio.sleep(3)
        assert upstream.live == {"vk_1"}
        (event,) = await rotations(peer, accepted["job_id"])
        assert event["payload"]["body"]["value"] == upstream.keys["vk_1"].value
        assert upstream.live == set()
    assert store.credentials == []


async def test_there_is_nothing_to_rotate(autojump_clock: MockClock) -> None:
    """An id that is not the job's raises in the agent."""
    runtime = providing_runtime(Upstream())

    @runtime.agent("wrong")
    async def wrong(job: JobContext) -> Json:
        """Rotate a credential that the job does not have."""
        with pytest.raises(KeyError):
            await job.rotate("cred_x")
        return True

    async with runtime, open_peers(runtime) as peers:
        for features in ((), ("provisioned_credentials",)):
            peer = await peers.connect()
            await peer.hello(features=features)
            accepted = await peer.submit("wrong")
            assert (await peer.until_terminal(accepted["job_id"]))["payload"]["result"] is True


@pytest.mark.spec("9.8.2-4")
@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("at", [0.2, 0.7])
async def test_a_job_that_ends_while_it_rotates(
    at: float, autojump_clock: MockClock, *, stubborn: bool
) -> None:
    """Keys that are minted by a rotation during or after the job's end are revoked."""
    upstream, store = Upstream(stubborn=stubborn), SafeStore()
    async with provided(upstream, store, cancel_grace_seconds=0) as (_, peer):
        accepted = await peer.submit("rotator", {"times": 1}, lease_request=LEASE)
        upstream.slow = upstream.slow_answer = 0.5
        await trio.sleep(1 + at)
        await peer.send("job.cancel", {"job_id": accepted["job_id"]})
        assert await rotations(peer, accepted["job_id"]) == []
        assert upstream.live == set()
        await trio.sleep(15)
        assert upstream.live == set()
    assert store.credentials == []


# -- which sessions see the value


@pytest.mark.spec("14-10", "14-11", "7.6-6", "7.6-7", "9.8.2-2")
async def test_only_the_submitting_principal_sees_values(autojump_clock: MockClock) -> None:
    """An observer of another principal sees no value, live, in history or in a listing."""
    upstream = Upstream()
    async with providing_runtime(upstream) as runtime, open_peers(runtime) as peers:
        submitter, live, late = [await peers.connect() for _ in range(3)]
        await submitter.hello()
        for peer in (live, late):
            await peer.hello(token=AUDITOR)
        job = {"times": 2, "sleep": 5}
        accepted = await submitter.submit("rotator", job, lease_request=LEASE)
        job_id = accepted["job_id"]
        seen: list[object] = []
        request = await live.send("job.subscribe", {"job_id": job_id, "history": True})
        seen.append(await live.answer("job.subscribed", request))
        await trio.sleep(4)
        request = await late.send("job.subscribe", {"job_id": job_id, "history": True})
        seen.append(await late.answer("job.subscribed", request))
        request = await late.send("session.list_jobs")
        seen.append(await late.answer("session.jobs", request))
        for peer in (live, late):
            told = await rotations(peer, job_id)
            assert [list(event["payload"]["body"]) for event in told] == [["phase", "id"]] * 2
            seen += [told, peer.seen]
        assert SECRET not in repr(seen)
        assert "'credentials'" not in repr(seen)
        told = await rotations(submitter, job_id)
        assert [SECRET in event["payload"]["body"]["value"] for event in told] == [True, True]


@pytest.mark.spec("7.6-6")
async def test_another_session_of_the_submitter_sees_values(autojump_clock: MockClock) -> None:
    """Another session of the submitter sees the values, and those of rotations."""
    upstream = Upstream()
    async with providing_runtime(upstream) as runtime, open_peers(runtime) as peers:
        submitter, other = [await peers.connect() for _ in range(2)]
        for peer in (submitter, other):
            await peer.hello()
        job = {"times": 2, "sleep": 5}
        job_id = (await submitter.submit("rotator", job, lease_request=LEASE))["job_id"]
        (value,) = upstream.live_values
        request = await other.send("job.subscribe", {"job_id": job_id})
        answer = await other.answer("job.subscribed", request)
        assert [credential["value"] for credential in answer["credentials"]] == [value]
        told = await rotations(other, job_id)
        assert [SECRET in event["payload"]["body"]["value"] for event in told] == [True, True]


async def test_a_resume_shows_values_that_are_good(autojump_clock: MockClock) -> None:
    """A replay has the newest value while the job runs, and none after its end."""
    upstream = Upstream()
    async with providing_runtime(upstream) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        job = {"times": 2, "sleep": 20}
        accepted = await peer.submit("rotator", job, lease_request=LEASE)
        await trio.sleep(5)
        back = await resumed(peers, peer)
        again = await back.expect("job.accepted")
        events = [await back.expect("job.event") for _ in range(2)]
        (newest,) = upstream.live_values
        assert [c["value"] for c in again["payload"]["credentials"]] == [newest]
        assert [event["payload"]["body"]["value"] for event in events] == [newest] * 2
        await back.until_terminal(accepted["job_id"])
        last = await resumed(peers, back)
        again = await last.expect("job.accepted")
        assert "credentials" not in again["payload"]
        events = [await last.expect("job.event") for _ in range(2)]
        assert ["value" in event["payload"]["body"] for event in events] == [False, False]


async def resumed(peers: PeerFactory, peer: Peer) -> Peer:
    """Return a client that has resumed this session from its beginning."""
    resume = peer.resume_from() | {"last_event_seq": 0}
    await peer.drop()
    back: Peer = await peers.connect()
    await back.hello(resume=resume)
    return back


# -- races


@pytest.mark.spec("9.8.2-4")
async def test_a_rotation_and_the_end_at_once(autojump_clock: MockClock) -> None:
    """Rotations that race with ends a thousand times leave no key alive."""
    upstream, store = Upstream(mints=2, rotates=2), SafeStore()
    runtime = providing_runtime(upstream, store, cancel_grace_seconds=0)

    @runtime.agent("racer")
    async def racer(job: JobContext) -> Json:
        """Rotate all credentials over and over, and end after the input's seconds."""
        with trio.move_on_after(job.input):
            async with trio.open_nursery() as nursery:
                for credential in job.credentials:
                    nursery.start_soon(rotate_on, job, credential.id)

    async def rotate_on(job: JobContext, credential_id: str) -> None:
        while True:
            await job.rotate(credential_id)

    upstream.slow = upstream.slow_answer = upstream.slow_revoke = 0.003
    chance = random.Random(1)
    async with runtime, open_peer(runtime) as peer:
        await peer.hello()
        for burst in range(20):
            submit: Frame = {"agent": "racer", "lease_request": LEASE}
            for _ in range(50):
                submit["input"] = chance.uniform(0.004, 0.04)
                await peer.send("job.submit", submit)
            jobs = [(await peer.expect("job.accepted"))["payload"]["job_id"] for _ in range(50)]
            for job_id in jobs[burst % 2 :: 2]:
                await trio.sleep(chance.uniform(0, 0.002))
                await peer.send("job.cancel", {"job_id": job_id})
            for job_id in jobs:
                await peer.until_terminal(job_id)
            assert upstream.live == set()
            peer.seen.clear()
        await trio.sleep(30)
        assert upstream.live == set()
        assert scrape(runtime)("credentials_outstanding") == 0
    assert len(upstream.keys) > 4_000
    assert store.credentials == []
