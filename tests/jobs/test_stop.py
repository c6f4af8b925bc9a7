"""Stopping jobs from any session of their principal, which `job.cancel` does not allow."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from arcp_trio import JobNotFound, PermissionDenied, Policy, Runtime
from arcp_trio.testing import Peer, open_peer, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.features import ALL_FEATURES, CLIENT_FEATURES, Feature
from tests.jobs.cancelling import cancelled, status_of
from tests.stage import BOB, OPERATOR, make_runtime

STOP = "x-vendor.arcp-trio.stop"
STOPPED = "x-vendor.arcp-trio.stopped"
UNKNOWN = "job_01ARZ3NDEKTSV4RRFFQ69G5FAV"


async def stop(peer: Peer, job_id: str, **fields: str) -> Frame:
    """Stop a job and return the answer's payload."""
    request = await peer.send(STOP, {"job_id": job_id, **fields})
    return await peer.answer(STOPPED, request)


async def test_another_session_stops_it_at_once(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A session that did not submit a job stops it; the end says who did and why."""
    job = await peer.submit("sleeper")
    async with open_peer(runtime) as other:
        await other.hello()
        answer = await stop(other, job["job_id"], reason="runs away")
        answer.pop("request_id")
        assert answer == {"job_id": job["job_id"], "reason": "runs away"}
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["final_status"] == "cancelled"
    assert end["payload"]["code"] == "CANCELLED"
    assert end["payload"]["message"] == "runs away"
    assert end["payload"]["details"] == {"stopped_by": "alice", "reason": "runs away"}


async def test_no_reason_is_invented(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """Without a reason neither the answer nor the details of the end have one."""
    job = await peer.submit("sleeper")
    assert "reason" not in await stop(peer, job["job_id"])
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["details"] == {"stopped_by": "alice"}


async def test_a_cancel_names_nobody(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """The end of a job that was cancelled by `job.cancel` is what it was before."""
    job = await peer.submit("sleeper")
    await cancelled(peer, job["job_id"])
    assert "details" not in (await peer.until_terminal(job["job_id"]))["payload"]


async def test_who_stopped_it_first_is_told(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A second stop while the agent cleans up is answered, and changes nothing."""
    job = await peer.submit("stubborn", 3)
    await peer.expect("job.event")
    await stop(peer, job["job_id"], reason="first")
    async with open_peer(runtime) as other:
        await other.hello()
        await stop(other, job["job_id"], reason="second")
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["details"]["reason"] == "first"


@pytest.mark.parametrize("status", ["running", "success"])
async def test_anothers_job_is_like_none(
    runtime: Runtime, peer: Peer, status: str, autojump_clock: MockClock
) -> None:
    """A stop of another principal's job, live or over, is answered as one of an unknown job."""
    job = await peer.submit("sleeper" if status == "running" else "echo")
    if status == "success":
        await peer.until_terminal(job["job_id"])
    refusals: list[object] = []
    async with open_peer(runtime) as bob:
        await bob.hello(token=BOB)
        for job_id in (job["job_id"], UNKNOWN):
            with pytest.raises(JobNotFound) as refusal:
                await stop(bob, job_id)
            refusals.append(refusal.value.payload())
    assert refusals[0] == refusals[1]
    assert await status_of(peer, job["job_id"]) == status


async def test_a_job_that_has_ended(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A stop that comes too late is refused with the job's status."""
    job = await peer.submit("echo")
    await peer.until_terminal(job["job_id"])
    with pytest.raises(InvalidRequest, match="has ended: success"):
        await stop(peer, job["job_id"])


async def test_an_operator_may_and_an_observer_may_not(autojump_clock: MockClock) -> None:
    """An operator stops anybody's job, and is named in its end; an observer is refused."""
    policy = Policy(observers={"bob"})
    async with (
        make_runtime(operators=["operator"], policy=policy) as runtime,
        open_peers(runtime) as peers,
    ):
        peer, bob, operator = [await peers.connect() for _ in range(3)]
        await peer.hello()
        await bob.hello(token=BOB)
        await operator.hello(token=OPERATOR)
        job = await peer.submit("sleeper")
        with pytest.raises(PermissionDenied):
            await stop(bob, job["job_id"])
        await stop(operator, job["job_id"])
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["details"] == {"stopped_by": "operator"}


async def test_a_policy_without_it(autojump_clock: MockClock) -> None:
    """Where the policy forbids it, no session stops a job, and no welcome names the feature."""
    async with make_runtime(policy=Policy(allow_stop=False)) as runtime, open_peer(runtime) as peer:
        welcome = await peer.hello(features=CLIENT_FEATURES)
        assert Feature.STOP not in welcome["payload"]["capabilities"]["features"]
        job = await peer.submit("sleeper")
        for job_id in (job["job_id"], UNKNOWN):
            with pytest.raises(PermissionDenied):
                await stop(peer, job_id)
        await cancelled(peer, job["job_id"])


async def test_only_a_client_that_knows_the_feature_is_told_of_it(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    """The welcome names the feature to clients that offer it; others see those of §6.2 alone."""
    async with open_peers(runtime) as peers:
        ours, others = await peers.connect(), await peers.connect()
        told = (await ours.hello(features=CLIENT_FEATURES))["payload"]["capabilities"]
        assert Feature.STOP in told["features"]
        told = (await others.hello(features=ALL_FEATURES))["payload"]["capabilities"]
        assert Feature.STOP not in told["features"]
        await ours.drop()
        again = await peers.connect()
        welcome = await again.hello(features=CLIENT_FEATURES, resume=ours.resume_from())
        assert Feature.STOP in welcome["payload"]["capabilities"]["features"]


async def test_a_resume_repeats_it(runtime: Runtime, autojump_clock: MockClock) -> None:
    """A client that has lost the answer gets it again with its replay, before the job's end."""
    async with open_peers(runtime) as peers:
        first = await peers.connect()
        await first.hello()
        job = await first.submit("stubborn", 5)
        await first.expect("job.event")
        resume = first.resume_from()
        await stop(first, job["job_id"])
        await first.drop()
        second = await peers.connect()
        await second.hello(resume=resume)
        await second.expect(STOPPED, job_id=job["job_id"])
        await second.until_terminal(job["job_id"])


async def test_a_malformed_stop_is_refused(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A stop without a job's id is refused by the name of the field."""
    request = await peer.send(STOP, {"reason": "why"})
    with pytest.raises(InvalidRequest, match="job_id"):
        await peer.answer(STOPPED, request)
