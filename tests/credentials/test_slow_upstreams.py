"""Credentials that come late or never, and what goes on meanwhile (§9.8.2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InternalError
from arcp_trio.testing import open_peer, open_peers
from arcp_trio.testing.frames import Frame
from tests.credentials.runtimes import LEASE, SafeStore, provided, providing_runtime
from tests.credentials.upstream import Upstream, down
from tests.footprint import tasks
from tests.inside import live_jobs

# -- when it fails


def unusable(upstream: Upstream) -> None:
    """Have the upstream answer with a credential that cannot be sent."""
    upstream.extra["model.use"] = [float("nan")]


def silent(upstream: Upstream) -> None:
    """Have the upstream mint, and answer too late."""
    upstream.slow_answer = 60


def failing(upstream: Upstream) -> None:
    """Have the upstream fail before it mints."""
    upstream.failing = down("issue", times=1)


def failing_late(upstream: Upstream) -> None:
    """Have the upstream mint, and then fail."""
    upstream.failing_after = down("issue", times=1)


@pytest.mark.parametrize("fail", [failing, failing_late, unusable, silent])
async def test_no_credentials_no_job(
    fail: Callable[[Upstream], None], caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """If no credentials are issued the submit is refused as retryable, and nothing is left."""
    upstream, store = Upstream(mints=2), SafeStore()
    fail(upstream)
    async with provided(upstream, store, jobs_per_principal=1) as (runtime, peer):
        await peer.answer("session.jobs", await peer.send("session.list_jobs"))  # one task stays
        before = tasks()
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
        assert tasks() == before
        assert not live_jobs(runtime)
        upstream.extra.clear()
        upstream.slow_answer = 0
        accepted = await peer.submit("worker", lease_request=LEASE, idempotency_key="k")
        assert len(accepted["credentials"]) == 2
    assert any(r.message == "credentials not issued" for r in caplog.records)


async def test_what_is_minted_after_all_is_revoked(autojump_clock: MockClock) -> None:
    """A key that appears after its order was given up is revoked at the second try."""
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
    """While the upstream is slow other requests are served, and answers keep their order."""
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
    """A client that drops meanwhile and resumes finds its job with the value."""
    upstream = Upstream(slow=0.5, slow_answer=0.5)
    async with providing_runtime(upstream) as runtime, open_peers(runtime) as peers:
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
    """If the client never resumes, its job runs to its end and the keys are revoked."""
    upstream = Upstream(slow=0.5, slow_answer=0.5)
    async with (
        providing_runtime(upstream, resume_window_seconds=1) as runtime,
        open_peer(runtime) as peer,
    ):
        await peer.hello()
        submit: Frame = {"agent": "worker", "input": 10, "lease_request": LEASE}
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
    """A shutdown meanwhile refuses the submit, and what was minted is revoked."""
    upstream, store = Upstream(slow=0.5, slow_answer=0.5), SafeStore()
    async with providing_runtime(upstream, store) as runtime, open_peer(runtime) as peer:
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
    assert not store._tables.journals
    async with providing_runtime(upstream, store):  # keys on their way may have been minted since
        upstream.mint_late()
        await trio.sleep(11)
        assert upstream.live == set()
        assert store.credentials == []


@pytest.mark.spec("9.8.2-4")
async def test_an_answer_that_comes_behind_a_shutdown(autojump_clock: MockClock) -> None:
    """A key that the upstream mints after the shutdown is revoked by the next start."""
    upstream, store = Upstream(slow=0.3, slow_answer=0.3, stubborn=True), SafeStore()
    async with providing_runtime(upstream, store) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        request = await peer.send("job.submit", {"agent": "worker", "lease_request": LEASE})
        await trio.sleep(0.2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.shutdown)
            with pytest.raises(InternalError):
                await peer.answer("job.accepted", request)
        assert upstream.live == set()
    assert not store._tables.journals


@pytest.mark.spec("9.8.2-4")
async def test_no_job_begins_in_a_drain(autojump_clock: MockClock) -> None:
    """A submit whose credentials come during a drain is refused."""
    upstream = Upstream(slow=1)
    async with providing_runtime(upstream) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        request = await peer.send("job.submit", {"agent": "worker", "lease_request": LEASE})
        await trio.sleep(0.5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.shutdown, 10)
            with pytest.raises(InternalError, match="shutting down"):
                await peer.answer("job.accepted", request)
        assert len(upstream.keys) == 1
        assert upstream.live == set()
