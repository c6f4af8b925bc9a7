"""How long an idempotency key stands for its job (§7.2)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio.store.memory import MemoryStore
from arcp_trio.wire.errors import DuplicateKey, JobNotFound
from tests.flow.support import open_flow, same
from tests.inside import live_jobs

DAY = 86_400


async def test_a_key_expires(autojump_clock) -> None:
    """A key is free after `idempotency_seconds` and the job's retention, and never before."""
    async with open_flow(idempotency_seconds=1_000, finished_job_seconds=10) as flow:
        peer = await flow.welcomed()
        first = await peer.submit("echo", 1, idempotency_key="k")
        await peer.until_terminal(first["job_id"])
        await trio.sleep(990)
        with pytest.raises(JobNotFound):
            await peer.submit("echo", 1, idempotency_key="k")
        with pytest.raises(DuplicateKey):
            await peer.submit("echo", 2, idempotency_key="k")
        await trio.sleep(20)
        second = await peer.submit("echo", 2, idempotency_key="k")
        assert second["job_id"] != first["job_id"]
        await peer.until_terminal(second["job_id"])
        assert flow.runs == [1, 2]


async def test_a_key_outlives_its_job(autojump_clock) -> None:
    """After the job's retention, its key starts nothing, and says that the end is not kept."""
    async with open_flow(idempotency_seconds=DAY, finished_job_seconds=0) as flow:
        peer = await flow.welcomed()
        first = await peer.submit("echo", 1, idempotency_key="k")
        await peer.until_terminal(first["job_id"])
        await trio.sleep(60)
        assert await flow.store.job(first["job_id"]) is None
        other = await flow.welcomed()
        for each in (peer, other):
            with pytest.raises(JobNotFound, match="its end is no longer kept"):
                await each.submit("echo", 1, idempotency_key="k")
            with pytest.raises(DuplicateKey):
                await each.submit("echo", 2, idempotency_key="k")
        await wait_all_tasks_blocked()
        assert flow.runs == [1]


@pytest.mark.parametrize("running", [True, False])
async def test_a_key_lives_at_least_as_long_as_its_job(autojump_clock, *, running: bool) -> None:
    """While its job runs or is retained, a key is not free, however short keys live."""
    async with open_flow(idempotency_seconds=0, finished_job_seconds=1_000) as flow:
        peer = await flow.welcomed()
        agent = "sleeper" if running else "echo"
        first = await peer.submit(agent, 1, idempotency_key="k")
        await trio.sleep(900)
        assert same(first, await peer.submit(agent, 1, idempotency_key="k"))
        if running:
            await peer.send("job.cancel", {"job_id": first["job_id"]})
        await peer.until_terminal(first["job_id"])
        if running:
            await trio.sleep(990)
            assert same(first, await peer.submit(agent, 1, idempotency_key="k"))
        await trio.sleep(1_010)
        again = await peer.submit(agent, 1, idempotency_key="k")
        assert again["job_id"] != first["job_id"]


async def test_many_keys_leave_nothing_behind(autojump_clock) -> None:
    """Of thousands of keys over simulated days, only the latest are kept."""
    async with open_flow(
        idempotency_seconds=100, finished_job_seconds=50, unacked_frames=100
    ) as flow:
        peer = await flow.welcomed()
        for number in range(2_000):
            job = await peer.submit("echo", number, idempotency_key=f"k{number}")
            await peer.until_terminal(job["job_id"])
            peer.seen.clear()
            await trio.sleep(1)
        assert isinstance(flow.store, MemoryStore)
        assert len(flow.store._tables.keys) <= 110
        assert len(flow.store._tables.journals) <= 60
        await trio.sleep(110)
        assert flow.store._tables.keys == {}
        assert flow.store._tables.journals == {}
        assert live_jobs(flow.runtime) == set()


async def test_repeats_do_not_grow_the_log(autojump_clock) -> None:
    """A thousand repeats of a submit leave one acceptance to replay while the job runs."""
    async with open_flow() as flow:
        peer = await flow.welcomed()
        job_ids = {
            (await peer.submit("tap", 1, idempotency_key="k"))["job_id"] for _ in range(1_000)
        }
        assert len(job_ids) == 1
        await peer.drop()
        again = await flow.resumed(peer, 0)
        await flow.tap.shut()
        await again.expect("job.result")
        assert [frame["type"] for frame in again.seen].count("job.accepted") == 1


async def test_repeats_of_an_ended_job_leave_little_behind(autojump_clock) -> None:
    """A thousand terminals that are said again keep as many numbers as any others would."""
    async with open_flow(unacked_frames=100) as flow:
        peer = await flow.welcomed()
        job = await peer.submit("echo", 1, idempotency_key="k")
        for _ in range(1_000):
            await peer.until_terminal(job["job_id"])
            await peer.submit("echo", 1, idempotency_key="k")
        assert (await peer.until_terminal(job["job_id"]))["event_seq"] == 1_001
        assert isinstance(flow.store, MemoryStore)
        (session,) = flow.store._tables.sessions.values()
        assert len(session.items) <= 202
        (journal,) = flow.store._tables.journals.values()
        assert journal.numbers == [(1, 0, 1)]
