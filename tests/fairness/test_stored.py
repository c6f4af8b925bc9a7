"""What one principal keeps in the store is bounded, and costs no other one its jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import JobContext, Json, Limits, MemoryStore, Runtime, StaticTokens
from arcp_trio.runtime.limits import MIB
from arcp_trio.store import queue
from arcp_trio.store.memory.machine import most_bytes
from arcp_trio.testing import Peer
from arcp_trio.wire.errors import ArcpError
from tests.flow.paging import listed
from tests.inside import SWEEP_SECONDS
from tests.metrics import scrape
from tests.stage import BOB, Stage, simple_agents

KB = 1_000


async def do(peer: Peer, count: int) -> list[str]:
    """Have `count` jobs done with results of a hundred kilobytes; return their ids."""
    ids: list[str] = []
    for _ in range(count):
        ids.append((await peer.submit("echo", "x" * 100 * KB))["job_id"])
        await peer.until_terminal(ids[-1])
        peer.seen.clear()
    return ids


@pytest.mark.parametrize("limit", ["stored_bytes_per_principal", "stored_bytes_total"])
async def test_a_disk_is_shared(autojump_clock: MockClock, limit: str) -> None:
    """Past a bound the oldest jobs of who stores most go; then it can submit no more."""
    most = 2_000 * KB
    async with Stage.open(MemoryStore(), limits=Limits(**{limit: most})) as stage:
        stage.runtime.add(simple_agents)

        @stage.runtime.agent("writer")
        async def writer(job: JobContext) -> Json:
            """Emit as many events of a hundred kilobytes as the input says, and go on."""
            for _ in range(job.input):
                await job.log("x" * 100 * KB)
            await trio.sleep_forever()

        alice, bob = await stage.welcomed(), await stage.welcomed(token=BOB)
        bobs = await do(bob, 3)
        alices = await do(alice, 40)
        await trio.sleep(2 * SWEEP_SECONDS)
        held = scrape(stage.runtime)
        assert held("held_most", pool="stored_bytes", principal="alice") <= most
        assert held("held", pool="stored_bytes") <= most + 310 * KB
        left = await listed(alice)
        assert len(left) > 10
        assert left == alices[: -len(left) - 1 : -1]
        # Running jobs are not given up, so they keep further ones of hers out.
        job = await alice.submit("writer", 30)
        await trio.sleep(2 * SWEEP_SECONDS)
        assert await listed(alice) == [job["job_id"]]
        with pytest.raises(ArcpError) as refused:
            await alice.submit("echo")
        assert refused.value.details["limit"] == limit
        assert await listed(bob) == bobs[::-1]
        await do(bob, 1)
        await alice.send("job.cancel", {"job_id": job["job_id"]})
        await alice.until_terminal(job["job_id"])
        await trio.sleep(2 * SWEEP_SECONDS)
        await do(alice, 1)


async def test_a_fast_writer_is_counted_as_it_writes(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored is counted when much was written, not only every few seconds."""
    monkeypatch.setattr(queue, "MUCH_BYTES", 500 * KB)
    async with Stage.open(MemoryStore(), limits=Limits(stored_bytes_total=1_000 * KB)) as stage:
        stage.runtime.add(simple_agents)
        alice = await stage.welcomed()
        await do(alice, 30)
        await wait_all_tasks_blocked()
        assert trio.current_time() < SWEEP_SECONDS
        assert scrape(stage.runtime)("held", pool="stored_bytes") < 1_600 * KB
        assert len(await listed(alice)) < 16


def test_a_store_in_memory_fits_into_the_machine() -> None:
    """The bound on what a store in memory keeps is lower where the machine has little memory."""
    words = Path("/proc/meminfo").read_text().split()
    assert MIB <= most_bytes() <= int(words[words.index("MemTotal:") + 1]) * 1024 / 4
    store = MemoryStore()
    store.most_bytes = 100 * MIB
    limits = Runtime(auth=StaticTokens({}), store=store).limits
    assert limits.stored_bytes_total == limits.stored_bytes_per_principal == 100 * MIB
    assert Limits().within(10**15) == Limits()
