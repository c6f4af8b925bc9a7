"""Credentials are issued with the acceptance, or the job is refused (§9.8)."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from trio.testing import MockClock

from arcp_trio import InvalidRequest, MemoryStore, Runtime, Unauthenticated
from arcp_trio.front.serve import serve_stream
from arcp_trio.testing import Peer, WireRecorder, open_peer, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.transport import connect, memory_streams
from arcp_trio.wire.features import ALL_FEATURES, Feature
from arcp_trio.wire.timestamps import rfc3339
from tests.credentials.runtimes import LEASE, SafeStore, as_told, provided, providing_runtime
from tests.credentials.upstream import Upstream
from tests.inside import WATCHDOG_LOG
from tests.jobs import doer

WITHOUT = tuple(name for name in ALL_FEATURES if name != Feature.PROVISIONED_CREDENTIALS)


# -- what is issued


@pytest.mark.spec(
    "9.8.1-1", "9.8.1-2", "9.8.1-4", "9.8.1-5", "9.8.2-1", "9.8.3-1", "9.8.3-2", "9.8.3-3"
)
async def test_an_acceptance_shows_what_was_issued(autojump_clock: MockClock) -> None:
    """An acceptance has the whole credential, within the lease, and the agent has the same."""
    upstream, store = Upstream(), SafeStore()
    async with provided(upstream, store) as (_, peer):
        accepted = await peer.submit("worker", 1, lease_request=LEASE)
        (credential,) = accepted["credentials"]
        assert credential == as_told(credential["id"], upstream.keys["vk_1"].value)
        assert credential["id"].startswith("cred_")
        assert upstream.live == {"vk_1"}
        end = await peer.until_terminal(accepted["job_id"])
        assert end["payload"]["result"] == 1
    assert store.credentials == []


@pytest.mark.spec("9.6-11")
async def test_what_is_left_is_told_though_the_upstream_counts_too(
    autojump_clock: MockClock,
) -> None:
    """A credential with a budget does not change the remaining amounts."""
    async with provided(Upstream()) as (runtime, peer):
        runtime.add(doer.agents)
        end, bodies = await doer.do(peer, ["metric", "cost.llm", 0.5, "USD"], lease_request=LEASE)
    assert end["result"] == ["done"]
    told = [(body["name"], body["value"]) for body in bodies]
    assert told == [("cost.llm", 0.5), ("cost.budget.remaining", 1.5)]


@pytest.mark.spec("9.8.3-4")
@pytest.mark.parametrize("given", ["as in the lease", "with an offset", "earlier"])
async def test_an_expiry_is_told_in_utc(given: str, autojump_clock: MockClock) -> None:
    """The expiry is told in UTC: the lease's, or an earlier one of the upstream."""
    upstream = Upstream()
    async with provided(upstream) as (runtime, peer):
        now = runtime.clock.now()
        expires_at = rfc3339(now + 600)
        if given == "with an offset":
            upstream.extra["expires_at"] = expires_at.replace("Z", "+00:00")
        elif given == "earlier":
            upstream.extra["expires_at"] = rfc3339(now + 60)
        accepted = await peer.submit(
            "worker", lease_request=LEASE, lease_constraints={"expires_at": expires_at}
        )
        told = accepted["credentials"][0]["constraints"]["expires_at"]
        assert told == (rfc3339(now + 60) if given == "earlier" else expires_at)
        order = upstream.keys["vk_1"].order
        assert order.expires_at == expires_at
        assert order.seconds_left == pytest.approx(600, abs=1)


@pytest.mark.spec("9.8.2-3", "14-8")
async def test_no_two_jobs_share_a_value(autojump_clock: MockClock) -> None:
    """Each job has an order and credentials of its own."""
    async with provided(Upstream()) as (_, peer):
        values = set()
        for _ in range(5):
            accepted = await peer.submit("sleeper", lease_request=LEASE)
            values |= {credential["value"] for credential in accepted["credentials"]}
        assert len(values) == 5


async def test_a_job_that_needs_none_gets_none(autojump_clock: MockClock) -> None:
    """A provisioner may issue nothing: the acceptance has no credentials, and none is stored."""
    upstream, store = Upstream(mints=0), SafeStore()
    async with provided(upstream, store) as (_, peer):
        accepted = await peer.submit("worker")
        assert "credentials" not in accepted
        assert (await peer.until_terminal(accepted["job_id"]))["payload"]["result"] == 0
        assert store.credentials == []
        assert upstream.times("revoke") == []


async def test_a_client_of_the_python_sdk_gets_them_too(autojump_clock: MockClock) -> None:
    """A frame that is translated for a dialect has the values, too."""
    upstream = Upstream()
    async with providing_runtime(upstream) as runtime, open_peer(runtime) as peer:
        capabilities = {"encodings": ["json"], "features": list(ALL_FEATURES), "agents": []}
        await peer.hello(capabilities=capabilities)
        accepted = await peer.submit("sleeper", lease_request=LEASE)
        assert accepted["budget"] == {"USD": "USD:2.0"}
        assert accepted["credentials"][0]["value"] in upstream.live_values


# -- which sessions get them


@pytest.mark.spec("14-7", "9.8.2-2")
async def test_who_is_not_authenticated_gets_none(autojump_clock: MockClock) -> None:
    """Without a token there is no session, and no credential."""
    upstream = Upstream()
    async with providing_runtime(upstream) as runtime, open_peer(runtime) as peer:
        with pytest.raises(Unauthenticated):
            await peer.hello(token="")
    assert upstream.calls == []


async def test_who_did_not_negotiate_gets_none(autojump_clock: MockClock) -> None:
    """Without the feature the upstream is not asked."""
    upstream = Upstream()
    async with providing_runtime(upstream) as runtime, open_peer(runtime) as peer:
        await peer.hello(features=WITHOUT)
        accepted = await peer.submit("worker", lease_request=LEASE)
        assert "credentials" not in accepted
        assert (await peer.until_terminal(accepted["job_id"]))["payload"]["result"] == 0
    assert upstream.calls == []


@asynccontextmanager
async def open_public_peer(
    runtime: Runtime, recorder: WireRecorder | None = None
) -> AsyncGenerator[Peer, None]:
    """Connect a client on a connection that others may read along."""
    ours, theirs = memory_streams()
    runtime.start_connection(partial(serve_stream, runtime, theirs, "far away"), "far away")
    async with connect(ours, max_bytes=1_000_000) as transport:
        yield Peer(transport, ours, recorder or WireRecorder())


@pytest.mark.spec("14-7")
async def test_nothing_is_offered_where_somebody_may_read_along(autojump_clock: MockClock) -> None:
    """On a connection that others may read along, the feature is not offered."""
    upstream = Upstream()
    async with providing_runtime(upstream) as runtime, open_public_peer(runtime) as peer:
        welcome = await peer.hello()
        offered = welcome["payload"]["capabilities"]["features"]
        assert Feature.PROVISIONED_CREDENTIALS not in offered
        assert set(offered) < set(ALL_FEATURES)
        assert "credentials" not in await peer.submit("worker", lease_request=LEASE)
    assert upstream.calls == []


@pytest.mark.spec("14-7")
@pytest.mark.parametrize("by", ["hello", "session.resume"])
async def test_a_session_takes_no_secrets_to_an_open_connection(
    by: str, autojump_clock: MockClock
) -> None:
    """Resumed on such a connection, a session is replayed without the values."""
    upstream = Upstream()
    async with providing_runtime(upstream) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        accepted = await peer.submit("sleeper", lease_request=LEASE)
        assert accepted["credentials"]
        resume = peer.resume_from() | {"last_event_seq": 0}
        await peer.drop()
        async with open_public_peer(runtime, peers.recorder) as back:
            if by == "hello":
                await back.hello(resume=resume)
            else:
                await back.send("session.resume", resume)
            again = await back.expect("job.accepted", job_id=accepted["job_id"])
            assert "credentials" not in again["payload"]
            assert "credentials" not in await back.submit("worker", lease_request=LEASE)


@pytest.mark.spec("14-14")
async def test_nothing_is_offered_without_a_durable_store(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """Without a durable store the feature is not offered, and that is logged once."""
    upstream = Upstream()
    async with providing_runtime(upstream, MemoryStore()) as runtime, open_peer(runtime) as peer:
        welcome = await peer.hello()
        offered = welcome["payload"]["capabilities"]["features"]
        assert Feature.PROVISIONED_CREDENTIALS not in offered
        assert "credentials" not in await peer.submit("worker", lease_request=LEASE)
    assert upstream.calls == []
    warnings = [
        record.message
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name != WATCHDOG_LOG
    ]
    assert warnings == ["provisioned_credentials is not offered: the store is not durable"]


async def test_the_feature_is_offered_in_its_place(autojump_clock: MockClock) -> None:
    """With a provisioner the feature is listed in the order of the specification."""
    for upstream in (Upstream(), None):
        async with providing_runtime(upstream) as runtime, open_peer(runtime) as peer:
            offered = (await peer.hello())["payload"]["capabilities"]["features"]
            assert (Feature.PROVISIONED_CREDENTIALS in offered) is (upstream is not None)
            assert offered == [name for name in ALL_FEATURES if name in offered]


# -- submitted again


async def test_a_submit_that_is_repeated_gets_the_same_credential(
    autojump_clock: MockClock,
) -> None:
    """Repeated submits of a key share one order, and get no values after the end."""
    upstream = Upstream(slow=2)
    async with providing_runtime(upstream) as runtime, open_peers(runtime) as peers:
        one, other = await peers.connect(), await peers.connect()
        submit: Frame = {"agent": "sleeper", "lease_request": LEASE, "idempotency_key": "k"}
        requests = []
        for peer in (one, other):
            await peer.hello()
            requests.append(await peer.send("job.submit", submit))
        first = await one.answer("job.accepted", requests[0])
        second = await other.answer("job.accepted", requests[1])
        assert first["credentials"] == second["credentials"]
        assert len(upstream.times("issue")) == 1
        await one.send("job.cancel", {"job_id": first["job_id"]})
        await one.until_terminal(first["job_id"])
        again = await one.submit(**submit)
        assert again["job_id"] == first["job_id"]
        assert "credentials" not in again


async def test_a_session_that_was_closed_still_gets_values(autojump_clock: MockClock) -> None:
    """After its close, a session that submits the key again gets the same credential."""
    upstream = Upstream()
    async with providing_runtime(upstream) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        submit: Frame = {"agent": "sleeper", "lease_request": LEASE, "idempotency_key": "k"}
        accepted = await peer.submit(**submit)
        await peer.send("session.close")
        await peer.expect("session.closed")
        back = await peers.connect()
        await back.hello(resume=peer.resume_from() | {"last_event_seq": 0})
        resumed = await back.expect("job.accepted")
        assert resumed["payload"]["credentials"] == accepted["credentials"]
        again = await back.submit(**submit)
        assert again["credentials"] == accepted["credentials"]


async def test_a_provisioners_own_refusal_reaches_the_client(autojump_clock: MockClock) -> None:
    """A provisioner that raises an ARCP error refuses the job in its own words."""
    refusal = InvalidRequest("no credentials for euros")
    upstream = Upstream(failing=lambda call: refusal if call == "issue" else None)
    async with provided(upstream) as (_, peer):
        with pytest.raises(InvalidRequest, match="no credentials for euros"):
            await peer.submit("worker", 1, lease_request=LEASE)
    assert upstream.live == set()
