"""Every key is revoked, before the terminal if the upstream permits (§9.8.2, §14)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from arcp_trio import Clock, InternalError
from arcp_trio.log_lines import fields_of
from arcp_trio.store.records import CredentialState
from arcp_trio.testing import Peer, open_peer
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.wire.timestamps import rfc3339
from tests.credentials.runtimes import LEASE, SafeStore, provided, providing_runtime
from tests.credentials.upstream import Upstream, down, refusing
from tests.metrics import scrape

Ending = Callable[[Peer, Clock], Awaitable[Frame]]


async def succeeds(peer: Peer, clock: Clock) -> Frame:
    """Run a job whose agent returns."""
    return await peer.submit("worker", 1, lease_request=LEASE)


async def fails(peer: Peer, clock: Clock) -> Frame:
    """Run a job whose agent raises."""
    return await peer.submit("failer", lease_request=LEASE)


async def is_cancelled(peer: Peer, clock: Clock) -> Frame:
    """Run a job that the client cancels."""
    accepted = await peer.submit("sleeper", lease_request=LEASE)
    await peer.send("job.cancel", {"job_id": accepted["job_id"]})
    return accepted


async def times_out(peer: Peer, clock: Clock) -> Frame:
    """Run a job that exceeds its time."""
    return await peer.submit("sleeper", lease_request=LEASE, max_runtime_sec=3)


async def expires(peer: Peer, clock: Clock) -> Frame:
    """Run a job whose lease expires."""
    constraints = {"expires_at": rfc3339(clock.now() + 3)}
    return await peer.submit("expirer", lease_request=LEASE, lease_constraints=constraints)


async def is_cut_off(peer: Peer, clock: Clock) -> Frame:
    """Run a job whose agent does not stop when it is cancelled."""
    accepted = await peer.submit("stubborn", lease_request=LEASE)
    await peer.send("job.cancel", {"job_id": accepted["job_id"]})
    return accepted


STATUS: dict[Ending, str] = {
    succeeds: "success",
    fails: "error",
    is_cancelled: "cancelled",
    times_out: "timed_out",
    expires: "error",
    is_cut_off: "cancelled",
}


async def terminal(peer: Peer, job_id: str) -> Frame:
    """Return the payload of the job's terminal at the moment it comes."""
    frame = await peer.until_terminal(job_id)
    assert frame["type"] in TERMINAL
    payload: Frame = frame["payload"]
    return payload


@pytest.mark.spec("9.8.2-4")
@pytest.mark.parametrize("ends", STATUS)
async def test_it_is_revoked_by_the_time_of_the_terminal(
    ends: Ending, autojump_clock: MockClock
) -> None:
    """However a job ends, its keys are revoked when its terminal comes."""
    upstream, store = Upstream(mints=3, slow_revoke=0.5), SafeStore()
    runtime = providing_runtime(upstream, store, cancel_grace_seconds=2)
    async with runtime, open_peer(runtime) as peer:
        await peer.hello()
        accepted = await ends(peer, runtime.clock)
        assert len(upstream.live) == 3
        end = await terminal(peer, accepted["job_id"])
        assert end["final_status"] == STATUS[ends]
        assert upstream.live == set()
        await trio.lowlevel.checkpoint()
        assert store.credentials == []
        assert scrape(runtime)("credentials_outstanding") == 0


@pytest.mark.spec("9.8.2-4")
async def test_it_is_revoked_by_the_time_of_a_shutdown(autojump_clock: MockClock) -> None:
    """The keys of jobs that a shutdown ends are revoked, too."""
    upstream, store = Upstream(slow_revoke=0.5), SafeStore()
    async with providing_runtime(upstream, store) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        accepted = await peer.submit("sleeper", lease_request=LEASE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.shutdown)
            assert (await terminal(peer, accepted["job_id"]))["code"] == "INTERNAL_ERROR"
            assert upstream.live == set()
    assert store.credentials == []


@pytest.mark.spec("9.8.2-5", "14-13")
@pytest.mark.parametrize("trouble", ["it fails", "it hangs"])
async def test_a_job_does_not_wait_long_for_an_upstream_that_is_down(
    trouble: str, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """If the upstream is down, the terminal comes after `revoke_seconds` and tries go on."""
    upstream, store = Upstream(), SafeStore()
    if trouble == "it fails":
        upstream.failing = down("revoke")
    else:
        upstream.slow_revoke = 1_000
    async with provided(upstream, store) as (runtime, peer):
        began = trio.current_time()
        accepted = await peer.submit("worker", lease_request=LEASE)
        await terminal(peer, accepted["job_id"])
        assert trio.current_time() - began == pytest.approx(5, abs=0.1)
        assert upstream.live == {"vk_1"}
        (row,) = store.credentials
        assert row.state == CredentialState.REVOKING
        assert scrape(runtime)("credentials_outstanding") == 1
        await trio.sleep(600)
        assert upstream.live == {"vk_1"}
        upstream.failing, upstream.slow_revoke = down(), 0
        await trio.sleep(70)
        assert upstream.live == set()
        assert store.credentials == []
    assert any(r.message == "credential not revoked" for r in caplog.records)


@pytest.mark.spec("9.8.2-5")
async def test_tries_are_further_and_further_apart(autojump_clock: MockClock) -> None:
    """Each pause between tries is twice the one before, up to a minute."""
    upstream = Upstream(failing=down("revoke"))
    async with provided(upstream) as (_, peer):
        await peer.submit("worker", lease_request=LEASE)
        await trio.sleep(400)
    times = upstream.times("revoke")
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[:8] == pytest.approx([0.5, 1, 2, 4, 8, 16, 32, 60])
    assert pauses[8:-1] == pytest.approx([60] * len(pauses[8:-1]))


@pytest.mark.spec("9.8.2-5")
async def test_tries_go_on_for_days(autojump_clock: MockClock) -> None:
    """After two days without the upstream the keys are still revoked."""
    upstream = Upstream(failing=down("revoke"))
    async with provided(upstream) as (_, peer):
        await peer.submit("worker", lease_request=LEASE)
        await trio.sleep(2 * 86_400)
        assert len(upstream.times("revoke")) > 2_000
        upstream.failing = down()
        await trio.sleep(61)
        assert upstream.live == set()


@pytest.mark.spec("9.8.2-5")
async def test_passing_trouble_delays_the_terminal_only(autojump_clock: MockClock) -> None:
    """After three failed tries within the bound the terminal comes after the revocation."""
    upstream = Upstream(failing=down("revoke", times=3))
    async with provided(upstream) as (_, peer):
        began = trio.current_time()
        accepted = await peer.submit("worker", lease_request=LEASE)
        await terminal(peer, accepted["job_id"])
        assert trio.current_time() - began == pytest.approx(3.5, abs=0.1)
        assert upstream.live == set()


@pytest.mark.spec("14-13")
async def test_a_shutdown_waits_a_moment_and_forgets_nothing(autojump_clock: MockClock) -> None:
    """Keys that cannot be revoked within a second of a shutdown are left to the next start."""
    upstream, store = Upstream(), SafeStore()
    async with provided(upstream, store) as (_, peer):
        upstream.failing = down("revoke")
        gone = await peer.submit("worker", lease_request=LEASE)
        await terminal(peer, gone["job_id"])
        await peer.submit("sleeper", lease_request=LEASE)
        began = trio.current_time()
    assert trio.current_time() - began == pytest.approx(1, abs=0.2)
    assert len(upstream.live) == 2
    assert {row.state for row in store.credentials} == {CredentialState.REVOKING}
    upstream.failing = down()
    async with providing_runtime(upstream, store) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        assert upstream.live == set()
        assert store.credentials == []


@pytest.mark.spec("9.8.2-4")
async def test_a_shutdown_lets_what_is_under_way_come_to_its_end(
    autojump_clock: MockClock,
) -> None:
    """A shutdown also waits for the keys of a submit that was refused."""
    upstream = Upstream(failing_after=down("issue"), slow_revoke=0.6)
    async with provided(upstream) as (_, peer):
        with pytest.raises(InternalError):
            await peer.submit("worker", lease_request=LEASE)
        assert upstream.live
    assert upstream.live == set()


@pytest.mark.spec("14-13")
async def test_a_restart_is_not_held_up_for_long(autojump_clock: MockClock) -> None:
    """A start with the upstream down serves after the bound, and revoking goes on."""
    upstream, store = Upstream(), SafeStore()
    async with provided(upstream, store) as (_, peer):
        await peer.submit("sleeper", lease_request=LEASE)
        upstream.failing = down("revoke")
    upstream.failing_after = down()
    began = trio.current_time()
    async with providing_runtime(upstream, store) as runtime, open_peer(runtime) as peer:
        assert trio.current_time() - began == pytest.approx(5, abs=0.1)
        await peer.hello()
        assert upstream.live
        upstream.failing = down()
        await trio.sleep(70)
        assert upstream.live == set()
        assert store.credentials == []


@pytest.mark.spec("9.8.2-6", "14-13")
@pytest.mark.logs_error("cannot be revoked .*the master key is not accepted")
async def test_what_cannot_be_revoked_is_said_to_operators_and_kept(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """A final refusal to revoke is logged as an error, kept in the store, and not tried again."""
    upstream, store = Upstream(failing=refusing), SafeStore()
    async with provided(upstream, store) as (runtime, peer):
        accepted = await peer.submit("worker", lease_request=LEASE)
        (credential,) = accepted["credentials"]
        await terminal(peer, accepted["job_id"])
        await trio.sleep(600)
        assert len(upstream.times("revoke")) == 1
        assert scrape(runtime)("credentials_outstanding") == 1
    (row,) = store.credentials
    assert row.state == CredentialState.UNREVOCABLE
    (told,) = [fields_of(r) for r in caplog.records if r.levelno == logging.ERROR]
    named = (told["credential_id"], told["job_id"], told["order_id"], told["handle"])
    assert named == (credential["id"], accepted["job_id"], row.order_id, "vk_1")
    upstream.failing = down()
    async with providing_runtime(upstream, store):
        assert upstream.live == set()
    assert store.credentials == []


@pytest.mark.spec("14-13")
@pytest.mark.logs_error("no provisioner to revoke credentials with count=1")
async def test_a_start_without_the_provisioner_says_what_it_cannot_do(
    autojump_clock: MockClock,
) -> None:
    """A start without the provisioner logs that, and keeps the rows."""
    upstream, store = Upstream(), SafeStore()
    async with provided(upstream, store) as (_, peer):
        upstream.failing = down("revoke")
        await peer.submit("sleeper", lease_request=LEASE)
    async with providing_runtime(None, store) as runtime:
        assert scrape(runtime)("credentials_outstanding") == 1
    assert len(store.credentials) == 1


async def test_many_are_revoked_some_at_a_time(autojump_clock: MockClock) -> None:
    """A thousand keys are revoked in batches, and a job that ends meanwhile does not wait."""
    upstream, store = Upstream(mints=1_000), SafeStore()
    async with provided(upstream, store) as (_, peer):
        upstream.failing = down("revoke")
        await peer.submit("sleeper", lease_request=LEASE)
    upstream.failing, upstream.slow_revoke, upstream.mints = down(), 1, 1
    async with providing_runtime(upstream, store) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        # A batch each second, for the five seconds that a start waits.
        assert 200 < len(upstream.revoked) < 400
        accepted = await peer.submit("worker", lease_request=LEASE)
        began = trio.current_time()
        await terminal(peer, accepted["job_id"])
        assert trio.current_time() - began <= 2
        assert upstream.live
        await trio.sleep(20)
        assert upstream.live == set()
    assert store.credentials == []
