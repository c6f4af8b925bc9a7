"""What a node tells of jobs that run at another one, and what it counts of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from arcp_trio import InternalError, Limits
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from tests.cluster.side_by_side import nodes_over
from tests.questions.support import asked

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 60
DOLLARS = {"cost.budget": ["USD:5.00"]}


async def jobs_of(peer: Peer) -> list[Frame]:
    """Return the jobs that a listing has."""
    jobs: list[Frame] = (
        await peer.answer("session.jobs", await peer.send("session.list_jobs", {}))
    )["jobs"]
    return jobs


async def job_at_a_node(peer: Peer) -> Frame:
    """Return the one job of a listing, as soon as the peer's node knows where it runs."""
    while True:
        (job,) = await jobs_of(peer)
        if "node" in job["x-vendor.arcp-trio"]:
            return job
        await trio.sleep(0.1)


async def first_limit(ask: Callable[[], Awaitable[None]]) -> str:
    """Ask again and again, until a limit is reached; return its name."""
    while True:
        try:
            await ask()
        except InternalError as refusal:
            return str(refusal.details["limit"])
        await trio.sleep(0.2)


async def test_a_listing_has_the_jobs_of_all_nodes(database: str) -> None:
    """A running job is listed at another node with its status, its numbers and its spending."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, other = await here.welcomed(), await there.welcomed()
            job = await peer.submit("spender", 1.25, lease_request=DOLLARS)
            await peer.expect("job.event", job_id=job["job_id"])
            left = await peer.expect("job.event", job_id=job["job_id"])
            assert left["payload"]["body"]["value"] == 3.75
            own, told = await job_at_a_node(peer), await job_at_a_node(other)
            brief = told["x-vendor.arcp-trio"]
            assert brief["spent"] == {"USD": "1.25"}
            assert brief["node"] == here.store.shared.name
            assert told == own


async def test_a_subscription_tells_the_budget(database: str) -> None:
    """A subscriber at another node is told what is left of the budget, before and after a cost."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            peer, other = await here.welcomed(), await there.welcomed()
            sleeping = await peer.submit("sleeper", lease_request=DOLLARS)
            spending = await peer.submit("spender", 1.25, lease_request=DOLLARS)
            await peer.expect("job.event", job_id=spending["job_id"])
            await peer.expect("job.event", job_id=spending["job_id"])
            for job, left in ((sleeping, 5.00), (spending, 3.75)):
                request = await other.send("job.subscribe", {"job_id": job["job_id"]})
                told = await other.answer("job.subscribed", request)
                assert told["budget"] == {"USD": left}
                assert told["current_status"] == "running"


async def test_a_token_for_looking(database: str) -> None:
    """A short-lived token that one node has signed opens sessions at all of them."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as (here, there):
            job_id = (await (await here.welcomed()).submit("sleeper"))["job_id"]
            for node in (here, there):
                looker = await node.welcomed(here.runtime.token_for("alice", 60))
                assert [job["job_id"] for job in await jobs_of(looker)] == [job_id]


async def test_limits_of_a_principal_count_all_nodes(database: str) -> None:
    """Past `jobs_per_principal` no node takes another job, as soon as the nodes have counted.

    Jobs that wait for people do not count.
    """
    limits = Limits(jobs_per_principal=2, sessions_per_principal=2, node_seconds=5)
    with trio.fail_after(SECONDS):
        async with nodes_over(database, limits=limits) as (here, there):
            peer, other = await here.welcomed(), await there.welcomed()
            await asked(peer)
            await asked(peer)
            await peer.submit("sleeper")

            async def submit() -> None:
                job = await other.submit("echo", 1)
                await other.until_terminal(job["job_id"])

            async def connect() -> None:
                await (await there.welcomed()).close()

            assert await first_limit(connect) == "sessions_per_principal"
            await submit()
            await peer.submit("sleeper")
            assert await first_limit(submit) == "jobs_per_principal"
