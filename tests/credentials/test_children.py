"""A child has credentials of its own, within its own lease and life (§9.8.2, §10)."""

from __future__ import annotations

from decimal import Decimal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.testing import Peer, open_peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import ALL_FEATURES, Feature
from tests.credentials.runtimes import LEASE, SafeStore, provided, providing_runtime
from tests.credentials.upstream import Upstream, down
from tests.inside import live_jobs


async def child_of(peer: Peer, job_id: str) -> Frame:
    """Return the acceptance of the job's child."""
    accepted: Frame = (await peer.expect("job.accepted", parent_job_id=job_id))["payload"]
    return accepted


@pytest.mark.spec("9.8.2-9", "9.8.2-10")
async def test_a_child_has_its_own_within_its_lease(autojump_clock: MockClock) -> None:
    """A child gets its own credential, bounded by the child's lease."""
    upstream, store = Upstream(), SafeStore()
    async with provided(upstream, store) as (_, peer):
        job = {"agent": "worker", "input": 2, "stays": 1}
        accepted = await peer.submit("parent", job, lease_request=LEASE)
        child = await child_of(peer, accepted["job_id"])
        (own,), (childs,) = accepted["credentials"], child["credentials"]
        assert own["value"] != childs["value"]
        assert childs["constraints"] == {
            "cost.budget": ["USD:0.50"],
            "model.use": ["tier-fast/small"],
        }
        order = upstream.keys["vk_2"].order
        assert order.budget == {"USD": Decimal("0.50")}
        assert order.job_id == child["job_id"]
        await peer.until_terminal(child["job_id"])
        assert upstream.live_values == {own["value"]}
        await peer.until_terminal(accepted["job_id"])
        assert upstream.live == set()
    assert store.credentials == []


async def test_the_child_of_a_job_without_has_none(autojump_clock: MockClock) -> None:
    """A child gets no credential if the feature was not negotiated for its parent."""
    features = tuple(f for f in ALL_FEATURES if f != Feature.PROVISIONED_CREDENTIALS)
    upstream = Upstream()
    async with providing_runtime(upstream) as runtime, open_peer(runtime) as peer:
        await peer.hello(features=features)
        accepted = await peer.submit("parent", {"agent": "worker"}, lease_request=LEASE)
        assert "credentials" not in await child_of(peer, accepted["job_id"])
        assert (await peer.until_terminal(accepted["job_id"]))["payload"]["result"] == 0
    assert upstream.calls == []


@pytest.mark.spec("9.8.2-11")
@pytest.mark.parametrize("by", ["cancel", "leaving", "timeout", "shutdown"])
async def test_the_end_of_a_parent_leaves_no_child_alive(
    by: str, autojump_clock: MockClock
) -> None:
    """When the parent's terminal comes, the child has ended and all keys are revoked."""
    upstream, store = Upstream(slow_revoke=0.4), SafeStore()
    async with providing_runtime(upstream, store) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        job = {"agent": "sleeper", "leaves": by == "leaving"}
        limit = {"max_runtime_sec": 2} if by == "timeout" else {}
        accepted = await peer.submit("parent", job, lease_request=LEASE, **limit)
        child = await child_of(peer, accepted["job_id"])
        async with trio.open_nursery() as nursery:
            if by == "cancel":
                await peer.send("job.cancel", {"job_id": accepted["job_id"]})
            elif by == "shutdown":
                nursery.start_soon(runtime.shutdown)
            end = await peer.until_terminal(child["job_id"])
            assert end["payload"]["code"] in {"CANCELLED", "INTERNAL_ERROR"}
            assert len(upstream.live) <= 1
            await peer.until_terminal(accepted["job_id"])
            assert upstream.live == set()
    assert store.credentials == []


@pytest.mark.spec("9.8.2-11")
@pytest.mark.parametrize("by", ["cancel", "timeout", "shutdown"])
@pytest.mark.parametrize("at", [0.5, 1.5])
async def test_a_parent_that_ends_while_its_child_is_issued(
    by: str, at: float, autojump_clock: MockClock
) -> None:
    """A parent that ends while its child's keys are minted gets no child, and they are revoked."""
    upstream, store = Upstream(slow_search=0.4), SafeStore()
    async with providing_runtime(upstream, store) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        limit = {"max_runtime_sec": 2} if by == "timeout" else {}
        job = {"agent": "sleeper", "after": 0.1}
        accepted = await peer.submit("parent", job, lease_request=LEASE, **limit)
        upstream.slow = upstream.slow_answer = 1
        await peer.expect("job.event", kind="delegate")
        await trio.sleep(at)
        assert len(upstream.live) == (1 if at < 1 else 2)
        async with trio.open_nursery() as nursery:
            if by == "cancel":
                await peer.send("job.cancel", {"job_id": accepted["job_id"]})
            elif by == "shutdown":
                nursery.start_soon(runtime.shutdown)
            await peer.until_terminal(accepted["job_id"])
            assert upstream.live == set()
            await wait_all_tasks_blocked()  # the job is over once its credentials are, too
            assert not live_jobs(runtime)
        assert not [frame for frame in peer.seen if frame["type"] == "job.accepted"]
        if by != "shutdown":
            await trio.sleep(15)
            assert store.credentials == []
    assert len(store._tables.journals) == 1


async def test_a_child_that_gets_none_is_refused(autojump_clock: MockClock) -> None:
    """A child whose credentials cannot be issued is refused, and the parent goes on."""
    upstream, store = Upstream(), SafeStore()
    async with provided(upstream, store, children_per_job=1) as (_, peer):
        job = {"agent": "worker", "after": 1}
        accepted = await peer.submit("parent", job, lease_request=LEASE)
        upstream.failing_after = down("issue")
        result = await peer.expect("job.event", kind="tool_result")
        error = result["payload"]["body"]["error"]
        assert error["code"] == "INTERNAL_ERROR"
        assert "gateway" not in str(error)
        await peer.until_terminal(accepted["job_id"])
        assert upstream.live == set()
        await trio.sleep(15)
    assert store.credentials == []
