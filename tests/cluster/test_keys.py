"""Idempotency keys that come at several nodes: one key, one job."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from arcp_trio import DuplicateKey, InternalError, Limits, PermissionDenied
from tests.cluster.side_by_side import NodeHere, nodes_over
from tests.credentials.upstream import Upstream, down

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 120
KEYS = 1_000
ROOMY = Limits(jobs_per_principal=5_000, jobs=5_000)


async def test_a_key_that_another_node_has(database: str) -> None:
    """The same submit at another node is the same job; other parameters are refused."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, other = await here.welcomed(), await there.welcomed()
            job = await peer.submit("sleeper", 1, idempotency_key="k")
            again = await other.submit("sleeper", 1, idempotency_key="k")
            assert again["job_id"] == job["job_id"]
            with pytest.raises(DuplicateKey):
                await other.submit("sleeper", 2, idempotency_key="k")
            await other.send("job.cancel", {"job_id": job["job_id"]})
            for each in (other, peer):
                end = await each.until_terminal(job["job_id"])
                assert end["payload"]["code"] == "CANCELLED"


async def test_a_submitter_at_another_node_counts(database: str) -> None:
    """While a session that came with the key lives at another node, no third one may cancel."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, third = await here.welcomed(), await here.welcomed()
            other = await there.welcomed()
            job = await peer.submit("sleeper", 1, idempotency_key="k")
            await other.submit("sleeper", 1, idempotency_key="k")
            await peer.send("session.close")
            await peer.expect("session.closed")
            request = await third.send("job.cancel", {"job_id": job["job_id"]})
            with pytest.raises(PermissionDenied):
                await third.answer("job.cancelled", request)
            await other.send("job.cancel", {"job_id": job["job_id"]})
            end = await other.until_terminal(job["job_id"])
            assert end["payload"]["code"] == "CANCELLED"


async def test_many_keys_at_three_nodes_at_once(database: str) -> None:
    """Of the nodes at which a key comes at once, one starts a job, and all promise that one."""
    jobs: list[list[str]] = [[] for _ in range(KEYS)]

    async def submit_all(node: NodeHere, jobs: list[list[str]]) -> None:
        peer = await node.welcomed()
        requests = [
            await peer.send(
                "job.submit", {"agent": "echo", "input": key, "idempotency_key": f"k{key}"}
            )
            for key in range(KEYS)
        ]
        for key, request in enumerate(requests):
            jobs[key].append((await peer.answer("job.accepted", request))["job_id"])
        for job_id, *_ in jobs:
            await peer.until_terminal(job_id)

    with trio.fail_after(SECONDS):
        async with nodes_over(database, 3, limits=ROOMY) as nodes:
            async with trio.open_nursery() as nursery:
                for node in nodes:
                    nursery.start_soon(submit_all, node, jobs)
            started = sum(node.runs for node in nodes)
    assert [len(set(ids)) for ids in jobs] == [1] * KEYS
    assert len({job_id for ids in jobs for job_id in ids}) == KEYS
    assert started == KEYS
    assert Counter(map(len, jobs)) == {3: KEYS}


async def test_nothing_is_minted_twice(database: str) -> None:
    """A key that comes at two nodes at once has credentials minted for it at one of them."""
    upstream = Upstream()
    with trio.fail_after(SECONDS):
        async with nodes_over(database, provisioner=upstream) as nodes:
            peers = [await node.welcomed() for node in nodes]
            for number in range(10):
                requests = [
                    await peer.send(
                        "job.submit",
                        {
                            "agent": "sleeper",
                            "lease_request": {"model.use": ["*"]},
                            "idempotency_key": f"k{number}",
                        },
                    )
                    for peer in peers
                ]
                ids = {
                    (await peer.answer("job.accepted", request))["job_id"]
                    for peer, request in zip(peers, requests, strict=True)
                }
                assert len(ids) == 1
                assert len(upstream.orders) == number + 1


async def test_a_key_that_another_node_has_claimed_for_nothing(database: str) -> None:
    """A submit waits for another node's credentials, and is accepted itself if they fail there."""
    upstream = Upstream(slow=1, failing_after=down("issue", times=1))
    submit = {"agent": "echo", "lease_request": {"model.use": ["*"]}, "idempotency_key": "k"}
    with trio.fail_after(30):
        limits = Limits(issue_seconds=60)
        async with nodes_over(database, limits=limits, provisioner=upstream) as (here, there):
            peer, other = await here.welcomed(), await there.welcomed()
            request = await peer.send("job.submit", submit)
            while not upstream.calls:  # noqa: ASYNC110 - no event tells
                await trio.sleep(0.01)
            accepted = await other.answer("job.accepted", await other.send("job.submit", submit))
            with pytest.raises(InternalError):
                await peer.answer("job.accepted", request)
            await other.until_terminal(accepted["job_id"])
            again = await peer.answer("job.accepted", await peer.send("job.submit", submit))
            assert again["job_id"] == accepted["job_id"]
            assert len(upstream.orders) == 2
