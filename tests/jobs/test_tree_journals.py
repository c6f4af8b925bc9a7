"""How the journals of a tree keep to their bounds, and for whom they are kept (§6.3, §10)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, Limits, MemoryStore
from arcp_trio.testing import Peer, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.jobs.trees import LEASE, agents, born, ends, talk
from tests.reading import until_end
from tests.stage import make_runtime


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_child_waits_for_a_slow_submitter_from_its_first_event_on(
    *, leaves: bool, autojump_clock: MockClock
) -> None:
    """A child waits for an attached submitter that has not read of it yet."""
    lines = 1000
    limits = Limits(journal_bytes=400_000, tail_frames=8)
    async with make_runtime(agents, limits=limits) as runtime, open_peers(runtime) as peers:

        @runtime.agent("root")
        async def root(job: JobContext) -> Json:
            # First more than the client's stream takes, then more than may be unsent.
            for lines_before in (300, 10):
                for _ in range(lines_before):
                    await job.log("y" * 1000)
                await trio.sleep(1)
            child = await job.delegate("loud", lines)
            await child.result()

        peer = await peers.connect()
        await peer.hello()
        same: Frame = {"lease_request": LEASE, "idempotency_key": "k"}
        job_id = (await peer.submit("root", **same))["job_id"]
        await trio.sleep(10)
        if leaves:
            await peer.drop()
            await trio.sleep(10)
            again = await peers.connect()
            await again.hello()
            assert (await again.submit("root", **same))["job_id"] == job_id
            assert (await until_end(again, job_id))[-1]["type"] == "job.result"
        else:
            frames = await until_end(peer, job_id)
            assert len(talk(frames)) == 310 + lines


async def test_what_children_spend_does_not_overfill_their_ancestors_journals(
    autojump_clock: MockClock,
) -> None:
    """Costs of children, told in their ancestors' journals, too, overfill none of them."""
    store, bound = MemoryStore(), 100_000
    runtime = make_runtime(agents, store=store, limits=Limits(journal_bytes=bound))
    async with runtime, open_peers(runtime) as peers:

        @runtime.agent("spender")
        async def spender(job: JobContext) -> None:
            for _ in range(2_000):
                await job.metric("cost.calls", 1, unit="USD")

        @runtime.agent("payer")
        async def payer(job: JobContext) -> None:
            budget = {"USD": 2_500}
            child = await job.delegate(job.input.pop(), job.input, lease=LEASE, budget=budget)
            await child.result()

        peer = await peers.connect()
        await peer.hello()
        lease: Frame = {**LEASE, "cost.budget": ["USD:5000"]}
        await peer.submit("payer", ["spender", "payer"], lease_request=lease)
        await peer.drop()
        await trio.sleep(5)
        assert len(store._tables.journals) == 3
        for journal in store._tables.journals.values():
            assert journal.base + len(journal.entries) > 2_000
            assert sum(len(entry.tail) for entry in journal.entries) < 1.2 * bound


async def until_first_line(peer: Peer) -> list[Frame]:
    """Read up to the first line of the first child."""
    frames: list[Frame] = []
    while set(talk(frames)) != {"before 0", "0a"}:
        frames.append(await peer.receive())
    return frames


@pytest.mark.parametrize(
    "limits", [Limits(finished_job_seconds=0), Limits(finished_jobs=0)], ids=str
)
async def test_a_childs_events_are_kept_for_who_is_owed_its_parents(
    limits: Limits, autojump_clock: MockClock
) -> None:
    """A session that is owed the root's events gets its children's, however short the retention."""
    async with make_runtime(agents, limits=limits) as runtime, open_peers(runtime) as peers:
        first = await peers.connect()
        await first.hello()
        root = (await first.submit("fan", 2, lease_request=LEASE))["job_id"]
        seen = await until_first_line(first)
        await first.drop()
        await trio.sleep(60)
        second = await peers.connect()
        await second.hello(resume=first.resume_from())
        frames = seen + await until_end(second, root)
    assert len(talk(frames)) == 8
    assert ends(frames) == [*born(frames), root]
