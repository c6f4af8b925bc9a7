"""Short-lived tokens: what can be looked at with one, for how long, and that one can do no more."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio import (
    ArcpError,
    InternalError,
    InvalidRequest,
    JobNotFound,
    MemoryStore,
    PermissionDenied,
    Policy,
    ResumeWindowExpired,
    Runtime,
    Unauthenticated,
)
from arcp_trio.runtime.views import PREFIX, Scope, View, ViewTokens
from arcp_trio.testing import Peer, PeerFactory, TrioClock, open_pair, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import CLIENT_FEATURES, Feature
from tests.reading import close_code
from tests.stage import AUDITOR, BOB, TOKENS, simple_agents

KEY = b"k" * 32
POLICY = Policy(observers=frozenset({"auditor"}))


def make(store: MemoryStore | None = None, key: bytes | None = KEY) -> Runtime:
    """Return a runtime with the simple agents, and an auditor who observes everybody's jobs."""
    runtime = Runtime(auth=TOKENS, clock=TrioClock(), policy=POLICY, store=store, signing_key=key)
    runtime.add(simple_agents)
    return runtime


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


async def welcomed(peers: PeerFactory, **hello: object) -> Peer:
    """Return a client with a session, which knows this project's features."""
    peer = await peers.connect()
    await peer.hello(features=CLIENT_FEATURES, **hello)  # type: ignore[arg-type]
    return peer


async def listed(peer: Peer, **filters: object) -> list[str]:
    """Return the ids of the jobs that a client lists."""
    await peer.send("session.list_jobs", {"filter": filters})
    return [entry["job_id"] for entry in (await peer.expect("session.jobs"))["payload"]["jobs"]]


async def subscribed(peer: Peer, job_id: str) -> Frame:
    """Subscribe to a job, and return the answer."""
    request = await peer.send("job.subscribe", {"job_id": job_id, "history": True})
    return await peer.answer("job.subscribed", request)


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
    for kind, payload in (
        ("job.submit", {"agent": "echo", "input": 1}),
        ("job.cancel", {"job_id": job_id}),
        ("x-vendor.arcp-trio.stop", {"job_id": job_id}),
        ("x-vendor.arcp-trio.token", {"seconds": 60}),
        (
            "x-vendor.arcp-trio.answer",
            {"job_id": job_id, "question_id": "q", "answer": 1},
        ),
    ):
        request = await peer.send(kind, payload)
        with pytest.raises(PermissionDenied) as refusal:
            await peer.answer("job.accepted", request)
        assert "this token is for looking only" in refusal.value.message
    assert await listed(owner) == [job_id]
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


async def test_tokens_and_sessions_survive_a_restart(autojump_clock: MockClock) -> None:
    """With the same key a token is good at the next runtime, and its session is what it was."""
    store = MemoryStore()
    async with make(store) as runtime, open_peers(runtime) as peers:
        token = runtime.token_for("alice", 600)
        looker = await welcomed(peers, token=token)
        resume = looker.resume_from()
    async with make(store) as runtime, open_peers(runtime) as peers:
        with pytest.raises(ResumeWindowExpired):
            await welcomed(peers, resume=resume)
        again = await welcomed(peers, token=token, resume=resume)
        request = await again.send("job.submit", {"agent": "echo"})
        with pytest.raises(PermissionDenied):
            await again.answer("job.accepted", request)
    async with make(key=None) as runtime, open_peers(runtime) as peers:
        with pytest.raises(Unauthenticated, match="the token is not valid"):
            await welcomed(peers, token=token)


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


@pytest.mark.parametrize("seconds", [0, -1, 86_401, float("nan")])
async def test_a_time_that_is_refused(seconds: float) -> None:
    """A token is good for more than no time, and at most a day."""
    with pytest.raises(ValueError, match="a token is good for more than 0"):
        make().token_for("alice", seconds)


@pytest.mark.logs_error("no signing key")
async def test_a_key_that_cannot_be_read(autojump_clock: MockClock) -> None:
    """Without its key a runtime makes and takes no tokens, and asks for the key the next time."""
    keys: list[bytes] = []
    runtime = Runtime(auth=TOKENS, clock=TrioClock(), signing_key=keys.pop)
    async with runtime, open_peers(runtime) as peers:
        with pytest.raises(InternalError, match="has no key for short-lived tokens"):
            runtime.token_for("alice", 60)
        with pytest.raises(InternalError, match="has no key for short-lived tokens"):
            await welcomed(peers, token=PREFIX + "x.y")
        keys.append(KEY)
        await welcomed(peers, token=runtime.token_for("alice", 60))
        await welcomed(peers, token=runtime.token_for("alice", 60))


def test_what_cannot_sign() -> None:
    """A short key and an empty principal are refused."""
    with pytest.raises(ValueError, match="32 bytes or more"):
        make(key=b"short")
    with pytest.raises(ValueError, match="the name is empty"):
        make().token_for("", 60)


@given(st.text(min_size=1), st.none() | st.text(min_size=1), st.data())
def test_only_whole_tokens_are_read(
    principal: str, job_id: str | None, data: st.DataObject
) -> None:
    """A token says what was signed; with any character changed or cut off, it says nothing."""
    tokens, view = ViewTokens(KEY), View(principal, Scope(job_id), 9.5)
    token = tokens.sign(view)
    assert token.isascii()
    assert tokens.read(token, 9) == view
    with pytest.raises(Unauthenticated):
        tokens.read(token, 9.5)
    assert Scope.among({"ack", view.scope.feature}) == view.scope
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("aZ_.-=é").filter(lambda each: each != token[place]))
    for forged in (token[:place], token[:place] + other + token[place + 1 :]):
        assert tokens.read(forged, 0) is None
    assert ViewTokens(b"K" * 32).read(token, 0) is None


@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    """A text that nobody has signed is not read as a view."""
    assert ViewTokens(KEY).read(PREFIX + text, 0) is None
    assert ViewTokens(KEY).read(text, 0) is None
