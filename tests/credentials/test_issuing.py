"""Credentials are issued with the acceptance, or the job is refused (§9.8)."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InternalError, MemoryStore, Runtime, Unauthenticated
from arcp_trio.front.serve import serve_stream
from arcp_trio.testing import Peer, WireRecorder, open_peer, open_peers
from arcp_trio.transport import connect, memory_streams
from arcp_trio.wire.features import ALL_FEATURES, Feature
from arcp_trio.wire.json import JsonObject
from arcp_trio.wire.timestamps import rfc3339
from tests.credentials.runtimes import LEASE, SafeStore, make_runtime, provided
from tests.credentials.upstream import ENDPOINT, Upstream, down
from tests.jobs import doer

WITHOUT = tuple(name for name in ALL_FEATURES if name != Feature.PROVISIONED_CREDENTIALS)


# -- what is issued


@pytest.mark.spec(
    "9.8.1-1", "9.8.1-2", "9.8.1-4", "9.8.1-5", "9.8.2-1", "9.8.3-1", "9.8.3-2", "9.8.3-3"
)
async def test_an_acceptance_shows_what_was_issued(autojump_clock: MockClock) -> None:
    """It has the whole credential, within the lease; the agent has the same."""
    upstream, store = Upstream(), SafeStore()
    async with provided(upstream, store) as (_, peer):
        accepted = await peer.submit("worker", 1, lease_request=LEASE)
        (credential,) = accepted["credentials"]
        assert credential == {
            "id": credential["id"],
            "scheme": "bearer",
            "value": upstream.keys["vk_1"].value,
            "endpoint": ENDPOINT,
            "profile": "openai",
            "constraints": {"cost.budget": ["USD:2.00"], "model.use": ["tier-fast/*"]},
        }
        assert credential["id"].startswith("cred_")
        assert upstream.live == {"vk_1"}
        end = await peer.until_terminal(accepted["job_id"])
        assert end["payload"]["result"] == 1
    assert store.credentials == []


@pytest.mark.spec("9.6-11")
async def test_what_is_left_is_told_though_the_upstream_counts_too(
    autojump_clock: MockClock,
) -> None:
    """A credential with the budget among its constraints changes nothing about that."""
    async with provided(Upstream()) as (runtime, peer):
        runtime.add(doer.agents)
        end, bodies = await doer.do(peer, ["metric", "cost.llm", 0.5, "USD"], lease_request=LEASE)
    assert end["result"] == ["done"]
    told = [(body["name"], body["value"]) for body in bodies]
    assert told == [("cost.llm", 0.5), ("cost.budget.remaining", 1.5)]


@pytest.mark.spec("9.8.3-4")
@pytest.mark.parametrize("given", ["as in the lease", "with an offset", "earlier"])
async def test_an_expiry_is_told_in_utc(given: str, autojump_clock: MockClock) -> None:
    """It ends in `Z` and is the lease's, however the upstream wrote it; an earlier one is told."""
    upstream = Upstream()
    async with provided(upstream) as (runtime, peer):
        now = runtime._core.clock.now()
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
    """Each job has an order of its own."""
    async with provided(Upstream()) as (_, peer):
        values = set()
        for _ in range(5):
            accepted = await peer.submit("sleeper", lease_request=LEASE)
            values |= {credential["value"] for credential in accepted["credentials"]}
        assert len(values) == 5


async def test_a_job_that_needs_none_gets_none(autojump_clock: MockClock) -> None:
    """A provisioner may find that there is nothing to issue: nothing is shown, and nothing kept."""
    upstream, store = Upstream(mints=0), SafeStore()
    async with provided(upstream, store) as (_, peer):
        accepted = await peer.submit("worker")
        assert "credentials" not in accepted
        assert (await peer.until_terminal(accepted["job_id"]))["payload"]["result"] == 0
        assert store.credentials == []
        assert upstream.times("revoke") == []


async def test_a_client_of_the_python_sdk_gets_them_too(autojump_clock: MockClock) -> None:
    """What is translated for a dialect is the frame with the values filled in."""
    upstream = Upstream()
    async with make_runtime(upstream) as runtime, open_peer(runtime) as peer:
        capabilities = {"encodings": ["json"], "features": list(ALL_FEATURES), "agents": []}
        await peer.hello(capabilities=capabilities)
        accepted = await peer.submit("sleeper", lease_request=LEASE)
        assert accepted["budget"] == {"USD": "USD:2.0"}
        assert accepted["credentials"][0]["value"] in upstream.live_values


# -- to whom


@pytest.mark.spec("14-7", "9.8.2-2")
async def test_who_is_not_authenticated_gets_none(autojump_clock: MockClock) -> None:
    """There is no session without a token, and so no credential."""
    upstream = Upstream()
    async with make_runtime(upstream) as runtime, open_peer(runtime) as peer:
        with pytest.raises(Unauthenticated):
            await peer.hello(token="")
    assert upstream.calls == []


async def test_who_did_not_negotiate_gets_none(autojump_clock: MockClock) -> None:
    """Without the feature the upstream is not even asked."""
    upstream = Upstream()
    async with make_runtime(upstream) as runtime, open_peer(runtime) as peer:
        await peer.hello(features=WITHOUT)
        accepted = await peer.submit("worker", lease_request=LEASE)
        assert "credentials" not in accepted
        assert (await peer.until_terminal(accepted["job_id"]))["payload"]["result"] == 0
    assert upstream.calls == []


@asynccontextmanager
async def open_public_peer(
    runtime: Runtime, recorder: WireRecorder | None = None
) -> AsyncGenerator[Peer, None]:
    """A peer on whose connection somebody may read along."""
    ours, theirs = memory_streams()
    runtime.start_connection(partial(serve_stream, runtime, theirs, "far away"), "far away")
    async with connect(ours, max_bytes=1_000_000) as transport:
        yield Peer(transport, ours, recorder or WireRecorder())


@pytest.mark.spec("14-7")
async def test_nothing_is_offered_where_somebody_may_read_along(autojump_clock: MockClock) -> None:
    """On an open connection the feature is not in the welcome, and not in force."""
    upstream = Upstream()
    async with make_runtime(upstream) as runtime, open_public_peer(runtime) as peer:
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
    """Resumed where somebody may read along, the session is replayed without the values."""
    upstream = Upstream()
    async with make_runtime(upstream) as runtime, open_peers(runtime) as peers:
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
    """What would be forgotten with the process is not promised to be revoked; said once."""
    upstream = Upstream()
    async with make_runtime(upstream, MemoryStore()) as runtime, open_peer(runtime) as peer:
        welcome = await peer.hello()
        offered = welcome["payload"]["capabilities"]["features"]
        assert Feature.PROVISIONED_CREDENTIALS not in offered
        assert "credentials" not in await peer.submit("worker", lease_request=LEASE)
    assert upstream.calls == []
    warnings = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
    assert warnings == ["provisioned_credentials is not offered: the store is not durable"]


async def test_the_feature_is_offered_in_its_place(autojump_clock: MockClock) -> None:
    """With a provisioner, and not without one; in the order of the specification."""
    for upstream in (Upstream(), None):
        async with make_runtime(upstream) as runtime, open_peer(runtime) as peer:
            offered = (await peer.hello())["payload"]["capabilities"]["features"]
            assert (Feature.PROVISIONED_CREDENTIALS in offered) is (upstream is not None)
            assert offered == [name for name in ALL_FEATURES if name in offered]


# -- when it fails


def unusable(upstream: Upstream) -> None:
    """Answer with what no client could be shown."""
    upstream.extra["model.use"] = [float("nan")]


def silent(upstream: Upstream) -> None:
    """Mint, and take too long to say so."""
    upstream.slow_answer = 60


def failing(upstream: Upstream) -> None:
    """Do not mint."""
    upstream.failing = down("issue", times=1)


def failing_late(upstream: Upstream) -> None:
    """Mint, and fail."""
    upstream.failing_after = down("issue", times=1)


@pytest.mark.parametrize("fail", [failing, failing_late, unusable, silent])
async def test_no_credentials_no_job(
    fail: Callable[[Upstream], None], caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """An error that may be tried again, nothing listed, the key free, and nothing left alive."""
    upstream, store = Upstream(mints=2), SafeStore()
    fail(upstream)
    async with provided(upstream, store, jobs_per_principal=1) as (runtime, peer):
        tasks = trio.lowlevel.current_statistics().tasks_living
        with pytest.raises(InternalError) as refused:
            await peer.submit("worker", lease_request=LEASE, idempotency_key="k", max_runtime_sec=5)
        assert refused.value.retryable
        assert "gateway" not in refused.value.message
        assert trio.current_time() <= 10.5
        await trio.sleep(1)
        assert upstream.live == set()
        listing = await peer.send("session.list_jobs")
        assert (await peer.answer("session.jobs", listing))["jobs"] == []
        await trio.sleep(15)
        assert store.credentials == []
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert not runtime._core.jobs.live
        upstream.extra.clear()
        upstream.slow_answer = 0
        accepted = await peer.submit("worker", lease_request=LEASE, idempotency_key="k")
        assert len(accepted["credentials"]) == 2
    assert any(r.message == "credentials not issued" for r in caplog.records)


async def test_what_is_minted_after_all_is_revoked(autojump_clock: MockClock) -> None:
    """A key that appears behind an order that was given up is found at the second look."""
    upstream, store = Upstream(), SafeStore()
    upstream.failing = down("issue")
    async with provided(upstream, store) as (_, peer):
        with pytest.raises(InternalError):
            await peer.submit("worker", lease_request=LEASE)
        await trio.sleep(3)
        (row,) = store.credentials
        assert row.order_id in upstream.orders
        upstream.mint_late()
        assert upstream.live
        await trio.sleep(10)
        assert upstream.live == set()
        assert store.credentials == []


# -- while it takes its time


async def test_a_slow_upstream_holds_up_nothing_else(autojump_clock: MockClock) -> None:
    """Meanwhile pings, acks, cancels and listings are served; answers keep their order."""
    upstream = Upstream()
    async with provided(upstream, heartbeat_seconds=3) as (_, peer):
        other = await peer.submit("sleeper", lease_request=LEASE)
        await peer.expect("job.event")
        upstream.slow = 8
        began = trio.current_time()
        slow = await peer.send("job.submit", {"agent": "worker", "lease_request": LEASE})
        wrong = await peer.send("job.submit", {"agent": "nobody"})
        await peer.send("session.ack", {"last_processed_seq": 1})
        await peer.send("session.ping", {"nonce": "n"})
        await peer.expect("session.pong", ping_nonce="n")
        listing = await peer.send("session.list_jobs")
        await peer.answer("session.jobs", listing)
        await peer.send("job.cancel", {"job_id": other["job_id"]})
        await peer.expect("job.cancelled", job_id=other["job_id"])
        await peer.until_terminal(other["job_id"])
        assert trio.current_time() - began < 1
        peer.seen.clear()
        await peer.answer("job.accepted", slow)
        assert trio.current_time() - began >= 8
        assert not [f for f in peer.seen if f["payload"].get("request_id") == wrong]
        await peer.expect("session.error", request_id=wrong)


@pytest.mark.spec("9.8.2-4")
async def test_who_drops_meanwhile_finds_the_job(autojump_clock: MockClock) -> None:
    """A session that lost its connection is still there: its job runs, and it gets the value."""
    upstream = Upstream(slow=0.5, slow_answer=0.5)
    async with make_runtime(upstream) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        await peer.send("job.submit", {"agent": "sleeper", "lease_request": LEASE})
        await trio.sleep(0.5)
        resume = peer.resume_from()
        await peer.drop()
        await trio.sleep(3)
        back = await peers.connect()
        await back.hello(resume=resume)
        accepted = (await back.expect("job.accepted"))["payload"]
        assert accepted["credentials"][0]["value"] in upstream.live_values
        await back.send("job.cancel", {"job_id": accepted["job_id"]})
        await back.until_terminal(accepted["job_id"])
        assert upstream.live == set()


@pytest.mark.spec("9.8.2-4")
@pytest.mark.parametrize("at", [0.2, 0.7])
async def test_who_never_comes_back_leaves_nothing_alive(
    at: float, autojump_clock: MockClock
) -> None:
    """The session's window ends, the job goes on with its credential, and both come to an end."""
    upstream = Upstream(slow=0.5, slow_answer=0.5)
    async with (
        make_runtime(upstream, resume_window_seconds=1) as runtime,
        open_peer(runtime) as peer,
    ):
        await peer.hello()
        submit: JsonObject = {"agent": "worker", "input": 10, "lease_request": LEASE}
        await peer.send("job.submit", submit)
        await trio.sleep(at)
        await peer.drop()
        await trio.sleep(8)
        assert upstream.live == {"vk_1"}
        await trio.sleep(8)
        assert upstream.live == set()


@pytest.mark.spec("9.8.2-4")
@pytest.mark.parametrize("at", [0.2, 0.7])
async def test_a_shutdown_meanwhile_leaves_nothing_alive(
    at: float, autojump_clock: MockClock
) -> None:
    """The submit is refused at once, and what was minted for it by then is revoked."""
    upstream, store = Upstream(slow=0.5, slow_answer=0.5), SafeStore()
    async with make_runtime(upstream, store) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        request = await peer.send("job.submit", {"agent": "worker", "lease_request": LEASE})
        await trio.sleep(at)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.shutdown)
            with pytest.raises(InternalError) as refused:
                await peer.answer("job.accepted", request)
            assert refused.value.retryable
            assert trio.current_time() == began
        assert upstream.live == set()
    assert not store.tables.journals
    async with make_runtime(upstream, store):  # what was on its way may have been minted since
        upstream.mint_late()
        await trio.sleep(11)
        assert upstream.live == set()
        assert store.credentials == []


@pytest.mark.spec("9.8.2-4")
async def test_an_answer_that_comes_behind_a_shutdown(autojump_clock: MockClock) -> None:
    """An upstream that cannot be interrupted: what it answers in the end is revoked as well."""
    upstream, store = Upstream(slow=0.3, slow_answer=0.3, stubborn=True), SafeStore()
    async with make_runtime(upstream, store) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        request = await peer.send("job.submit", {"agent": "worker", "lease_request": LEASE})
        await trio.sleep(0.2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.shutdown)
            with pytest.raises(InternalError):
                await peer.answer("job.accepted", request)
        assert upstream.live == set()
    assert not store.tables.journals


@pytest.mark.spec("9.8.2-4")
async def test_no_job_begins_in_a_drain(autojump_clock: MockClock) -> None:
    """A submit that waits for its credentials when new work is refused is refused, too."""
    upstream = Upstream(slow=1)
    async with make_runtime(upstream) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        request = await peer.send("job.submit", {"agent": "worker", "lease_request": LEASE})
        await trio.sleep(0.5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.shutdown, 10)
            with pytest.raises(InternalError, match="shutting down"):
                await peer.answer("job.accepted", request)
        assert len(upstream.keys) == 1
        assert upstream.live == set()


# -- submitted again


async def test_a_submit_that_is_repeated_gets_the_same_credential(
    autojump_clock: MockClock,
) -> None:
    """Under one key there is one order, also while it is slow; and nothing to tell at the end."""
    upstream = Upstream(slow=2)
    async with make_runtime(upstream) as runtime, open_peers(runtime) as peers:
        one, other = await peers.connect(), await peers.connect()
        submit: JsonObject = {"agent": "sleeper", "lease_request": LEASE, "idempotency_key": "k"}
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
    """It lets go of its jobs, but they are its principal's; the same key brings the same."""
    upstream = Upstream()
    async with make_runtime(upstream) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        submit: JsonObject = {"agent": "sleeper", "lease_request": LEASE, "idempotency_key": "k"}
        accepted = await peer.submit(**submit)
        await peer.send("session.close")
        await peer.expect("session.closed")
        back = await peers.connect()
        await back.hello(resume=peer.resume_from() | {"last_event_seq": 0})
        resumed = await back.expect("job.accepted")
        assert resumed["payload"]["credentials"] == accepted["credentials"]
        again = await back.submit(**submit)
        assert again["credentials"] == accepted["credentials"]
