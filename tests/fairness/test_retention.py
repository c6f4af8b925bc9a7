"""However many jobs one principal has done, the finished jobs of another one are kept."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobNotFound, Limits, MemoryStore
from arcp_trio.testing import Peer
from tests.flow.paging import listed
from tests.inside import SWEEP_SECONDS
from tests.stage import BOB, Stage, simple_agents

JOBS = 20
"""How many jobs bob has done."""


async def do(peer: Peer, count: int, key: str) -> list[str]:
    """Have `count` jobs done, the first of them under a key; return their ids, newest first."""
    ids: list[str] = []
    for number in range(count):
        keyed = {} if number else {"idempotency_key": key}
        ids.insert(0, (await peer.submit("echo", number, **keyed))["job_id"])
        await peer.until_terminal(ids[0])
        peer.seen.clear()
    return ids


async def test_those_with_most_finished_jobs_lose_theirs(autojump_clock: MockClock) -> None:
    """Past `finished_jobs` the oldest jobs go of those that have most, and their keys say so."""
    async with Stage.open(MemoryStore(), limits=Limits(finished_jobs=5 * JOBS)) as stage:
        stage.runtime.add(simple_agents)
        alice, bob = await stage.welcomed(), await stage.welcomed(token=BOB)
        bobs = await do(bob, JOBS, "k")
        alices = await do(alice, 10 * JOBS, "k")
        await trio.sleep(SWEEP_SECONDS + 1)
        assert await listed(bob, page_size=1_000) == bobs
        assert await listed(alice, page_size=1_000) == alices[: 4 * JOBS]
        assert (await bob.submit("echo", 0, idempotency_key="k"))["job_id"] == bobs[-1]
        assert (await bob.until_terminal(bobs[-1]))["payload"]["result"] == 0
        gone = f"{alices[-1]}, the job of this idempotency_key, has ended, .* is no longer kept"
        with pytest.raises(JobNotFound, match=gone):
            await alice.submit("echo", 0, idempotency_key="k")
