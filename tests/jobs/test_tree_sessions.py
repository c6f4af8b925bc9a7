"""What sessions see of a tree of jobs, wherever they come and go (§10)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import ArcpError, MemoryStore, Runtime
from arcp_trio.testing import open_peers
from arcp_trio.testing.frames import Frame
from tests.durability.stores import crash
from tests.jobs.trees import FAN, LEASE, agents, born, chained, ends, talk
from tests.reading import until_end
from tests.stage import make_runtime


@pytest.fixture
def runtime(runtime: Runtime) -> Runtime:
    """A runtime that also has agents with others below them."""
    runtime.add(agents)
    return runtime


@pytest.mark.spec("8.3-1", "8.3-2", "10-1")
@pytest.mark.parametrize("drop_after", range(14))
async def test_a_client_may_be_lost_anywhere_in_a_tree(
    runtime: Runtime, drop_after: int, autojump_clock: MockClock
) -> None:
    """A client that resumes anywhere in a tree sees every event once, in order."""
    async with open_peers(runtime) as peers:
        first = await peers.connect()
        await first.hello()
        root = (await first.submit("fan", 2, lease_request=LEASE))["job_id"]
        frames = [await first.receive() for _ in range(drop_after)]
        await first.drop()
        await trio.sleep(drop_after % 5)
        second = await peers.connect()
        await second.hello(resume=first.resume_from())
        frames += await until_end(second, root)
        once = list({frame["id"]: frame for frame in frames}.values())
    assert talk(once) == FAN
    assert len(born(once)) == 2
    assert ends(once) == [*born(once), root]


@pytest.mark.spec("7.2-1", "10-1")
@pytest.mark.parametrize("after", [0, 0.5, 1.5, 2.5, 3.5, 4.5])
async def test_another_session_that_submits_the_same_sees_the_whole_tree(
    runtime: Runtime, after: float, autojump_clock: MockClock
) -> None:
    """A second submitter sees all children from their first events, in its own numbers."""
    async with open_peers(runtime) as peers:
        first, second = await peers.connect(), await peers.connect()
        await first.hello()
        await second.hello()
        same: Frame = {"lease_request": LEASE, "idempotency_key": "k"}
        root = (await first.submit("fan", 2, **same))["job_id"]
        await trio.sleep(after)
        assert (await second.submit("fan", 2, **same))["job_id"] == root
        seen = await until_end(second, root)
        seen_first = await until_end(first, root)
    assert talk(seen) == talk(seen_first)
    assert born(seen) == born(seen_first)
    assert ends(seen) == ends(seen_first) == [*born(seen), root]


async def test_a_tree_without_a_session_goes_on(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A tree runs on after its session was closed, and a later submitter sees all of it."""
    async with open_peers(runtime) as peers:
        first = await peers.connect()
        await first.hello()
        same: Frame = {"lease_request": LEASE, "idempotency_key": "k"}
        await first.send("job.submit", {"agent": "fan", "input": 2, **same})
        await first.send("session.close")
        await first.expect("session.closed")
        await trio.sleep(3)
        second = await peers.connect()
        await second.hello()
        root = (await second.submit("fan", 2, **same))["job_id"]
        frames = await until_end(second, root)
    assert talk(frames) == FAN
    assert ends(frames) == [*born(frames), root]


async def test_a_session_that_ends_leaves_a_tree_that_any_of_its_principal_may_cancel(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    """After the submitter's session ended, another of the principal may cancel root and child."""
    async with open_peers(runtime) as peers:
        first, second = await peers.connect(), await peers.connect()
        await first.hello()
        await second.hello()
        root, frames = await chained(first, stubborn=False)
        leaf = born(frames)[-1]
        request = await second.send("job.cancel", {"job_id": leaf})
        with pytest.raises(ArcpError) as refusal:
            await second.answer("job.cancelled", request)
        assert refusal.value.code == "PERMISSION_DENIED"
        await first.send("session.close")
        await first.expect("session.closed")
        for job_id in (leaf, root):
            await second.send("job.cancel", {"job_id": job_id})
            await second.expect("job.cancelled", job_id=job_id)
            await wait_all_tasks_blocked()
            request = await second.send("job.cancel", {"job_id": job_id})
            with pytest.raises(ArcpError, match="cancelled"):
                await second.answer("job.cancelled", request)


@pytest.mark.parametrize("after", [0.5, 1.5, 2.5, 4.5])
@pytest.mark.parametrize("away", [False, True])
async def test_a_tree_goes_down_with_its_runtime(
    after: float, *, away: bool, autojump_clock: MockClock
) -> None:
    """After a crash the session sees one end for each job of the tree, leaf first."""
    store = MemoryStore()
    async with make_runtime(agents, store=store) as runtime, open_peers(runtime) as peers:
        first = await peers.connect()
        await first.hello()
        root = (await first.submit("fan", 2, lease_request=LEASE))["job_id"]
        if away:
            await first.drop()
        await trio.sleep(after)
        left = crash(store)
        resume = first.resume_from()
    async with make_runtime(store=left) as runtime, open_peers(runtime) as peers:
        second = await peers.connect()
        await second.hello(resume=resume)
        frames = await until_end(second, root)
    alive = born(frames)[-1:] if after != 2.5 else []
    assert talk(frames) == FAN[: len(talk(frames))]
    assert len(talk(frames)) == {0.5: 2, 1.5: 3, 2.5: 4, 4.5: 7}[after]
    assert ends(frames) == [*born(frames), root]
    lost = [f["job_id"] for f in frames if f["payload"].get("code") == "INTERNAL_ERROR"]
    assert lost == [*alive, root]
