"""Who may observe which jobs, what that allows, and what is logged about it (§7.6, §14)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import attrs
import pytest
from trio.testing import MockClock

from arcp_trio import ArcpError, InvalidRequest, JobNotFound, PermissionDenied, Policy
from arcp_trio.log_lines import TextFormatter, fields_of
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.json import Json
from tests.flow.observing import FEATURES, Scene, listing, open_scene, said, settled, subscribe
from tests.reading import numbers, until_end
from tests.stage import AUDITOR, BOB, OPERATOR


@pytest.fixture
def policy() -> Policy:
    """A policy by which the auditor may observe all jobs."""
    return Policy(observers=frozenset({"auditor"}))


async def refused(peer: Peer, kind: str, job_id: str) -> ArcpError:
    """Send a request about a job that must be refused, and return the refusal."""
    request = await peer.send(kind, {"job_id": job_id})
    with pytest.raises(ArcpError) as caught:
        await peer.answer("job.subscribed", request)
    return caught.value


async def listed(peer: Peer, **fields: Json) -> list[Json]:
    """Return the ids of the jobs of a listing."""
    return [entry["job_id"] for entry in (await listing(peer, **fields))["jobs"]]


# -- the same principal


@pytest.mark.spec("14-1", "7.6-9", "7.6-10", "7.6-11", "6.6-5")
@pytest.mark.parametrize("token", [BOB, OPERATOR])
async def test_others_cannot_tell_a_job_from_none(scene: Scene, token: str) -> None:
    """Subscribing to another's job, running or ended, is refused as an unknown one is.

    This holds for operators, too: the right to cancel any job does not include observing it.
    """
    owner, again, other = (
        await scene.welcomed(),
        await scene.welcomed(),
        await scene.welcomed(token=token),
    )
    running, ended = [(await owner.submit("teller"))["job_id"] for _ in range(2)]
    await scene.say(ended, 2)
    await scene.end(owner, ended)
    for job_id in (running, ended):
        errors = [await refused(other, "job.subscribe", each) for each in (job_id, "job_nobody")]
        assert [type(error) for error in errors] == [JobNotFound] * 2
        assert errors[0].payload() == errors[1].payload()
        assert (await subscribe(again, job_id))["job_id"] == job_id
    await scene.say(running, 3)
    for filter_ in ({}, {"agent": "teller"}, {"status": ["running", "success"]}):
        assert await listed(other, filter=filter_) == []
    assert not numbers(await settled(other))
    assert len(numbers(await settled(again))) == 3


# -- policy


@pytest.mark.spec("7.6-9", "7.6-13", "7.6-14", "14-2", "7.7-1")
async def test_an_observer_by_policy(scene: Scene) -> None:
    """An observer by policy lists and follows all jobs, and may not cancel them."""
    owner, bob = await scene.welcomed(), await scene.welcomed(token=BOB)
    auditor = await scene.welcomed(token=AUDITOR)
    jobs = [(await peer.submit("teller"))["job_id"] for peer in (owner, bob)]
    own = (await auditor.submit("echo"))["job_id"]
    assert await listed(auditor) == [own, *jobs[::-1]]
    assert await listed(auditor, filter={"agent": "teller"}) == jobs[::-1]
    for job_id in jobs:
        await scene.say(job_id, 2)
        await subscribe(auditor, job_id, history=True)
        assert said([await auditor.receive() for _ in range(2)]) == ["0", "1"]
        assert isinstance(await refused(auditor, "job.cancel", job_id), PermissionDenied)
    assert await listed(owner) == jobs[:1], "to be observed shows nothing of others"
    # Nor when no submitting session is left.
    await owner.send("session.close")
    await owner.expect("session.closed")
    assert isinstance(await refused(auditor, "job.cancel", jobs[0]), PermissionDenied)
    await scene.say(jobs[0], 1)
    await scene.end(auditor, jobs[0])
    await scene.end(bob, jobs[1])
    assert said([f for f in await settled(auditor) if f["job_id"] == jobs[0]][-1:]) == ["2"]


@pytest.mark.spec("7.6-13", "7.6-14", "14-2")
async def test_subscribing_gives_no_authority(scene: Scene) -> None:
    """Another session of the principal may subscribe to a job, but not cancel it."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await subscribe(watcher, job_id)
    assert isinstance(await refused(watcher, "job.cancel", job_id), PermissionDenied)
    await scene.say(job_id, 1)
    await scene.end(owner, job_id)
    assert said(await until_end(watcher, job_id)) == ["0", "job.result"]


@attrs.frozen(kw_only=True)
class Teams(Policy):
    """A policy by which the members of a team observe each other's jobs."""

    teams: Sequence[frozenset[str]]

    def observes_all(self, observer: str) -> bool:
        """Return whether this principal may observe anybody's jobs."""
        return any(observer in team for team in self.teams)

    def may_observe(self, observer: str, owner: str) -> bool:
        """Return whether both are one principal or in one team."""
        return observer == owner or any({observer, owner} <= team for team in self.teams)


async def test_a_policy_of_ones_own(autojump_clock: MockClock) -> None:
    """Listings and subscriptions follow the same custom policy."""
    policy = Teams(teams=[frozenset({"alice", "bob"})])
    async with open_scene(policy=policy) as scene:
        tokens = (TEST_TOKEN, BOB, AUDITOR)
        alice, bob, auditor = [await scene.welcomed(token=token) for token in tokens]
        jobs = [(await peer.submit("teller"))["job_id"] for peer in (alice, bob, auditor)]
        assert await listed(alice) == await listed(bob) == jobs[1::-1]
        assert await listed(auditor) == jobs[2:]
        # A job that it may not see takes a place on a page, and no more.
        seen: list[Json] = []
        cursor: Json = None
        while not seen or cursor is not None:
            page = await listing(alice, limit=1, cursor=cursor)
            seen += [entry["job_id"] for entry in page["jobs"]]
            cursor = page["next_cursor"]
        assert seen == jobs[1::-1]
        await subscribe(alice, jobs[1])
        assert isinstance(await refused(alice, "job.subscribe", jobs[2]), JobNotFound)
        assert isinstance(await refused(auditor, "job.subscribe", jobs[0]), JobNotFound)


# -- the audit log


@pytest.mark.spec("14-19")
async def test_every_decision_is_logged(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Each decision is logged in a line: who asked, for which job of whom, and the answer."""
    caplog.set_level(logging.INFO, "arcp_trio.audit")
    tokens = (TEST_TOKEN, TEST_TOKEN, BOB, AUDITOR)
    owner, again, bob, auditor = [await scene.welcomed(token=token) for token in tokens]
    job_id = (await owner.submit("teller"))["job_id"]
    for peer in (owner, again, auditor):
        await subscribe(peer, job_id)
    await refused(bob, "job.subscribe", job_id)
    forged = "job_x'\nsubscription allowed subscriber=bob job_id=job_y owner=bob"
    await refused(bob, "job.subscribe", forged)
    records = [record for record in caplog.records if record.name == "arcp_trio.audit"]
    assert [(record.getMessage(), fields_of(record)) for record in records] == [
        (
            f"subscription {decision}",
            {"subscriber": who, "job_id": job} | ({} if owner is None else {"owner": owner}),
        )
        for who, job, owner, decision in (
            ("alice", job_id, "alice", "allowed"),
            ("alice", job_id, "alice", "allowed"),
            ("auditor", job_id, "alice", "allowed"),
            ("bob", job_id, "alice", "refused"),
            ("bob", forged, None, "refused"),
        )
    ]
    assert not any("\n" in TextFormatter().format(record) for record in records)


# -- features


@pytest.mark.spec("6.2-4")
@pytest.mark.parametrize("missing", ["list_jobs", "subscribe"])
async def test_what_was_not_negotiated_is_refused(scene: Scene, missing: str) -> None:
    """A request of a feature that was not negotiated is refused by name."""
    owner, plain = await scene.welcomed(), await scene.connect()
    welcome = await plain.hello(features=tuple(name for name in FEATURES if name != missing))
    assert {"list_jobs", "subscribe"} <= set(welcome["payload"]["capabilities"]["features"])
    job_id = (await owner.submit("teller"))["job_id"]
    requests: dict[str, Frame] = {
        "session.list_jobs": {},
        "job.subscribe": {"job_id": job_id},
        "job.unsubscribe": {"job_id": job_id},
    }
    for kind, payload in requests.items():
        if (kind == "session.list_jobs") == (missing == "list_jobs"):
            request = await plain.send(kind, payload)
            with pytest.raises(InvalidRequest, match=missing):
                await plain.answer("session.jobs", request)
    await scene.say(job_id, 1)
    own = await plain.submit("echo")
    await plain.until_terminal(own["job_id"])
    assert not [frame for frame in plain.seen if frame.get("job_id") == job_id]


@pytest.mark.spec("7.6-2")
@pytest.mark.parametrize("kind", ["job.subscribe", "job.unsubscribe"])
@pytest.mark.parametrize("job_id", [..., None, "", 5, ["job"], "j" * 10_000])
async def test_a_subscription_names_its_job(scene: Scene, kind: str, job_id: object) -> None:
    """A subscription without `job_id` is refused, and the session goes on."""
    peer = await scene.welcomed()
    payload: Frame = {} if job_id is ... else {"job_id": job_id}
    request = await peer.send(kind, payload)
    with pytest.raises(InvalidRequest, match="job_id"):
        await peer.answer("job.subscribed", request)
    await peer.submit("echo")


@pytest.mark.parametrize(
    "fields",
    [
        {"from_event_seq": "7"},
        {"from_event_seq": 1.5},
        {"from_event_seq": True},
        {"history": 1},
        {"history": "true"},
    ],
)
async def test_fields_of_another_type_are_refused(scene: Scene, fields: Frame) -> None:
    """Fields of another type are refused by name, and nothing is subscribed to."""
    owner, peer = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    with pytest.raises(InvalidRequest, match=next(iter(fields))):
        await subscribe(peer, job_id, **fields)
    await scene.say(job_id, 1)
    assert not numbers(await settled(peer))


@pytest.mark.parametrize("after", [-1, -(2**63), 2**63 - 1])
async def test_a_number_that_there_cannot_be(scene: Scene, after: int) -> None:
    """A `from_event_seq` below 1 asks for everything, one beyond the last for what comes."""
    owner, peer = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await scene.say(job_id, 2)
    await settled(owner)
    answer = await subscribe(peer, job_id, history=True, from_event_seq=after)
    assert answer["replayed"] is (after < 0)
    await scene.say(job_id, 1)
    await scene.end(owner, job_id)
    due = ["0", "1", "2", "job.result"] if after < 0 else ["2", "job.result"]
    assert said(await until_end(peer, job_id)) == due
