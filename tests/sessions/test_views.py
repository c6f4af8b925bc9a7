"""Short-lived tokens: what can be looked at with one, for how long, and that one can do no more."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    ArcpError,
    InvalidRequest,
    JobNotFound,
    PermissionDenied,
    ResumeWindowExpired,
    Runtime,
    Unauthenticated,
)
from arcp_trio.testing import PeerFactory, open_pair, open_peers
from arcp_trio.wire.features import CLIENT_FEATURES, Feature
from tests.jobs import delegating
from tests.reading import close_code
from tests.sessions.views import listed, make, subscribed, welcomed
from tests.stage import AUDITOR, BOB
from tests.wire.examples import TO_RUNTIME_EXAMPLES

LOOKS = {
    *("session.hello", "session.resume", "session.close", "session.bye"),
    *("session.ping", "session.pong", "session.ack"),
    *("session.list_jobs", "job.subscribe", "job.unsubscribe"),
}
"""The messages that do nothing to a job; every other one is refused, also one that is new."""


@pytest.fixture
async def runtime() -> AsyncGenerator[Runtime]:
    """An entered runtime."""
    async with make() as entered:
        yield entered


@pytest.fixture
async def peers(runtime: Runtime) -> AsyncGenerator[PeerFactory]:
    """What connects raw clients to the runtime."""
    async with open_peers(runtime) as factory:
        yield factory


async def test_a_token_shows_the_jobs_of_its_principal(
    runtime: Runtime, peers: PeerFactory, autojump_clock: MockClock
) -> None:
    """With a token for a principal, its jobs are listed and followed, and nobody else's."""
    owner, other = await welcomed(peers), await welcomed(peers, token=BOB)
    mine = (await owner.submit("echo", 1))["job_id"]
    theirs = (await other.submit("sleeper"))["job_id"]
    looker = await welcomed(peers, token=runtime.token_for("alice", 60))
    assert await listed(looker) == [mine]
    await subscribed(looker, mine)
    assert (await looker.expect("job.result"))["job_id"] == mine
    with pytest.raises(JobNotFound):
        await subscribed(looker, theirs)


async def test_a_token_for_one_job_shows_no_other(
    runtime: Runtime, peers: PeerFactory, autojump_clock: MockClock
) -> None:
    """With a token for one job, only that job is listed and followed."""
    owner = await welcomed(peers)
    one, other = [(await owner.submit("sleeper"))["job_id"] for _ in range(2)]
    looker = await welcomed(peers, token=runtime.token_for("alice", 60, one))
    assert await listed(looker) == [one]
    assert await listed(looker, status=["success"]) == []
    assert await listed(looker, agent="echo") == []
    assert await listed(looker, created_before="2001-01-01T00:00:00Z") == []
    assert (await subscribed(looker, one))["job_id"] == one
    with pytest.raises(JobNotFound):
        await subscribed(looker, other)


async def test_a_token_for_one_job_shows_none_that_it_delegates_to(
    runtime: Runtime, peers: PeerFactory, autojump_clock: MockClock
) -> None:
    """A job's children are jobs of their own: a token for the job does not show them."""
    runtime.add(delegating.agents)
    owner = await welcomed(peers)
    asked = {"agent": "echo", "input": 1}
    parent = (await owner.submit("boss", asked, lease_request=delegating.LEASE))["job_id"]
    await owner.expect("job.result")
    (child,) = set(await listed(owner)) - {parent}
    looker = await welcomed(peers, token=runtime.token_for("alice", 60, parent))
    assert await listed(looker) == [parent]
    with pytest.raises(JobNotFound):
        await subscribed(looker, child)
    both = await welcomed(peers, token=runtime.token_for("alice", 60))
    assert set(await listed(both)) == {parent, child}


async def test_an_observers_token(
    runtime: Runtime, peers: PeerFactory, autojump_clock: MockClock
) -> None:
    """An observer's token for one job shows anybody's; one for all jobs only its own."""
    owner = await welcomed(peers)
    job_id = (await owner.submit("sleeper"))["job_id"]
    everything = await welcomed(peers, token=runtime.token_for("auditor", 60))
    assert await listed(everything) == []
    with pytest.raises(JobNotFound):
        await subscribed(everything, job_id)
    one = await welcomed(peers, token=runtime.token_for("auditor", 60, job_id))
    assert await listed(one) == [job_id]
    bobs = await welcomed(peers, token=runtime.token_for("bob", 60, job_id))
    assert await listed(bobs) == []
    with pytest.raises(JobNotFound):
        await subscribed(bobs, job_id)


@pytest.mark.parametrize("job_scope", [False, True])
async def test_nothing_else_can_be_done(
    runtime: Runtime, peers: PeerFactory, autojump_clock: MockClock, *, job_scope: bool
) -> None:
    """Whatever acts is refused with a clear error, and no feature that acts or tells is offered."""
    owner = await welcomed(peers)
    job_id = (await owner.submit("sleeper"))["job_id"]
    peer = await peers.connect()
    token = runtime.token_for("alice", 60, job_id if job_scope else None)
    welcome = await peer.hello(token=token, features=CLIENT_FEATURES)
    offered = set(welcome["payload"]["capabilities"]["features"])
    hidden = {Feature.STOP, Feature.TOKENS, Feature.PROVISIONED_CREDENTIALS}
    assert offered == set(CLIENT_FEATURES) - hidden
    for kind in TO_RUNTIME_EXAMPLES.keys() - LOOKS:
        payload = TO_RUNTIME_EXAMPLES[kind]
        named = {"job_id": job_id} if "job_id" in payload else {}
        request = await peer.send(kind, payload | named)
        with pytest.raises(PermissionDenied) as refusal:
            await peer.answer("job.accepted", request)
        assert "this token is for looking only" in refusal.value.message
    assert await listed(owner, status=["running"]) == [job_id]
    await peer.send("session.close", {})
    await peer.expect("session.closed")


async def test_its_time_ends_the_connection(
    runtime: Runtime, peers: PeerFactory, autojump_clock: MockClock
) -> None:
    """At the end of the token's time the client is told so, and the token opens nothing more."""
    token = runtime.token_for("alice", 60)
    await trio.sleep(30)
    peer = await welcomed(peers, token=token)
    began = trio.current_time()
    refused = (await peer.expect("session.error"))["payload"]
    assert (refused["code"], refused["message"]) == ("UNAUTHENTICATED", "the token's time is over")
    assert trio.current_time() - began == pytest.approx(30)
    assert await close_code(peer) == 1008
    with pytest.raises(Unauthenticated, match="time is over"):
        await welcomed(peers, token=token)
    with pytest.raises(Unauthenticated, match="time is over"):
        await welcomed(peers, token=token, resume=peer.resume_from())


async def test_a_session_is_resumed_with_its_own_kind_of_token(
    runtime: Runtime, peers: PeerFactory, autojump_clock: MockClock
) -> None:
    """A session for looking is resumed only with a token for the same: it stays what it is."""
    owner = await welcomed(peers)
    job_id = (await owner.submit("sleeper"))["job_id"]
    token = runtime.token_for("alice", 600)
    looker = await welcomed(peers, token=token)
    await subscribed(looker, job_id)
    await looker.close()
    resume = looker.resume_from()
    for other in ("test-token", runtime.token_for("alice", 60, job_id)):
        with pytest.raises(ResumeWindowExpired):
            await welcomed(peers, token=other, resume=resume)
    alone = await peers.connect()
    await alone.send("session.resume", resume)
    assert (await alone.receive())["payload"]["code"] == "RESUME_WINDOW_EXPIRED"
    with pytest.raises(ResumeWindowExpired):
        await welcomed(peers, token=token, resume=owner.resume_from())
    again = await welcomed(peers, token=runtime.token_for("alice", 60), resume=resume)
    request = await again.send("job.submit", {"agent": "echo"})
    with pytest.raises(PermissionDenied):
        await again.answer("job.accepted", request)
    await owner.send("job.cancel", {"job_id": job_id})
    assert (await again.expect("job.error"))["job_id"] == job_id


async def test_a_client_makes_a_token(runtime: Runtime, autojump_clock: MockClock) -> None:
    """A client gets tokens for its own principal, and for jobs that it may observe."""
    async with open_pair(runtime) as client, open_pair(runtime, token=BOB) as bob:
        job = await client.submit("sleeper")
        await bob.submit("sleeper")
        async with open_pair(runtime, token=await client.token_for(60)) as looker:
            assert [info.id async for info in looker.jobs()] == [job.id]
        with pytest.raises(JobNotFound):
            await bob.token_for(60, job_id=job.id)
        with pytest.raises(InvalidRequest, match=r"at most 86400 seconds @ \$.payload.seconds"):
            await bob.token_for(86_401)
        async with open_pair(runtime, token=AUDITOR) as auditor:
            token = await auditor.token_for(60, job_id=job.id)
        async with open_pair(runtime, token=token) as looker:
            observed = await looker.subscribe(job.id, history=True)
            assert observed.agent == "sleeper@1.0.0"
            with pytest.raises(ArcpError):
                await looker.token_for(60)
