"""How a tree of jobs ends: leaf first, within one grace (§10)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Agents, ArcpError, JobContext, Limits, Runtime
from arcp_trio.nurseries import tasks_beside
from arcp_trio.testing import Peer, open_peers
from arcp_trio.testing.frames import TERMINAL
from arcp_trio.wire.json import Json
from tests.durability.support import FailingStore
from tests.jobs.trees import DEPTH, LEASE, agents, born, chained, ends, why
from tests.reading import until_end
from tests.stage import make_runtime

GRACE = Limits().cancel_grace_seconds
END_OF_PARENT = ("cancelled", "CANCELLED", "the parent job ended")


@pytest.fixture
def runtime(runtime: Runtime) -> Runtime:
    """A runtime that also has agents with others below them."""
    runtime.add(agents)
    return runtime


@pytest.mark.spec("7.4-1", "7.4-2", "10-1")
@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_cancelled_root_takes_the_tree_along(
    peer: Peer, *, stubborn: bool, autojump_clock: MockClock
) -> None:
    """Cancelling a root ends its tree leaf first, within one grace for all."""
    root, frames = await chained(peer, stubborn=stubborn)
    began = trio.current_time()
    await peer.send("job.cancel", {"job_id": root, "reason": "enough"})
    frames += await until_end(peer, root)
    children = born(frames)
    assert len(children) == DEPTH
    assert ends(frames) == [*reversed(children), root]
    terminals = [frame for frame in frames if frame["type"] in TERMINAL]
    assert {why(frame) for frame in terminals[:-1]} == {END_OF_PARENT}
    assert why(terminals[-1]) == ("cancelled", "CANCELLED", "enough")
    took = trio.current_time() - began
    assert took == pytest.approx(GRACE if stubborn else 0)


@pytest.mark.spec("7.4-1")
@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_tree_ends_with_its_roots_time(
    peer: Peer, *, stubborn: bool, autojump_clock: MockClock
) -> None:
    """A root that runs too long is timed out, and the jobs below it are cancelled."""
    began = trio.current_time()
    root, frames = await chained(peer, stubborn=stubborn, max_runtime_sec=5)
    frames += await until_end(peer, root)
    assert ends(frames) == [*reversed(born(frames)), root]
    assert frames[-1]["payload"]["final_status"] == "timed_out"
    assert trio.current_time() - began == pytest.approx(5 + (GRACE if stubborn else 0))


async def test_the_middle_of_a_tree_may_be_cancelled(peer: Peer, autojump_clock: MockClock) -> None:
    """A cancelled child ends with the jobs below it; the jobs above it go on."""
    root, frames = await chained(peer, stubborn=False)
    children = born(frames)
    await peer.send("job.cancel", {"job_id": children[3]})
    frames += await until_end(peer, children[3])
    assert ends(frames) == children[:2:-1]
    await peer.send("job.cancel", {"job_id": root})
    frames = await until_end(peer, root)
    assert ends(frames) == [*children[2::-1], root]


@pytest.mark.parametrize("wait", [False, True])
async def test_a_parent_that_is_done_waits_for_a_stubborn_child(
    peer: Peer, *, wait: bool, autojump_clock: MockClock
) -> None:
    """A parent that has returned gets its terminal after its child's, unchanged."""
    began = trio.current_time()
    given: Json = ["stubborn", 100 if not wait else 3, wait]
    root = (await peer.submit("parent", given, lease_request=LEASE))["job_id"]
    if not wait:
        await trio.sleep(5)
        request = await peer.send("job.cancel", {"job_id": root})
        with pytest.raises(ArcpError, match="success"):
            await peer.answer("job.cancelled", request)
    frames = [*peer.seen, *await until_end(peer, root)]
    (child,) = born(frames)
    assert ends(frames) == [child, root]
    assert frames[-1]["payload"]["final_status"] == "success"
    assert trio.current_time() - began == pytest.approx(3 if wait else 1 + GRACE)
    with trio.move_on_after(200):
        raise AssertionError(await peer.receive())


async def test_who_is_cancelled_before_its_parent_has_its_own_grace(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A child that is ending gets no new grace when its parent is cancelled."""
    given: Json = ["stubborn", 1000, True]
    root = (await peer.submit("parent", given, lease_request=LEASE))["job_id"]
    (child,) = born([await peer.receive(), await peer.receive()])
    began = trio.current_time()
    await peer.send("job.cancel", {"job_id": child})
    await trio.sleep(20)
    await peer.send("job.cancel", {"job_id": root})
    await peer.until_terminal(child)
    assert trio.current_time() - began == pytest.approx(GRACE)
    await peer.until_terminal(root)
    assert trio.current_time() - began == pytest.approx(GRACE)


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_shutdown_ends_trees_within_its_bound(
    *, stubborn: bool, autojump_clock: MockClock
) -> None:
    """A shutdown ends every job of a tree, leaf first, and cuts off stubborn agents."""
    runtime = make_runtime(agents)
    async with tasks_beside() as nursery, runtime:
        peer = await nursery.start(_client, runtime)
        root, frames = await chained(peer, stubborn=stubborn)
        nursery.start_soon(runtime.shutdown)
        began = trio.current_time()
        frames += await until_end(peer, root)
        assert trio.current_time() - began == pytest.approx(2 if stubborn else 0)
        assert ends(frames) == [*reversed(born(frames)), root]
        assert {why(f)[1] for f in frames if f["type"] in TERMINAL} == {"INTERNAL_ERROR"}


async def _client(runtime: Runtime, *, task_status: trio.TaskStatus[Peer]) -> None:
    async with open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        task_status.started(peer)
        await trio.sleep_forever()


@pytest.mark.logs_error("store in trouble")
async def test_a_tree_ends_while_the_store_is_in_trouble(autojump_clock: MockClock) -> None:
    """Terminals that wait for a store in trouble are sent in order once it recovers."""
    store = FailingStore()
    async with make_runtime(agents, store=store) as runtime, open_peers(runtime) as peers:
        first = await peers.connect()
        await first.hello()
        root, before = await chained(first, stubborn=False, max_runtime_sec=5)
        store.broken = True
        await trio.sleep(60)
        store.broken = False
        await first.drop()
        await trio.sleep(5)
        second = await peers.connect()
        await second.hello(resume=first.resume_from())
        frames = await until_end(second, root)
        assert ends(frames) == [*reversed(born(before)), root]
        assert frames[-1]["payload"]["final_status"] == "timed_out"


@pytest.mark.logs_error("store in trouble")
async def test_a_child_that_cannot_be_stored_is_not_begun(autojump_clock: MockClock) -> None:
    """A child whose acceptance is not stored before its parent's end never runs."""
    store = FailingStore()
    begun: list[str] = []
    async with make_runtime(store=store) as runtime, open_peers(runtime) as peers:

        @runtime.agent("leaf")
        async def leaf(job: JobContext) -> Json:
            begun.append(job.id)

        @runtime.agent("root")
        async def root(job: JobContext) -> Json:
            await trio.sleep(1)
            store.broken = True
            child = await job.delegate("leaf")
            await child.result()

        peer = await peers.connect()
        await peer.hello()
        job_id = (await peer.submit("root", lease_request=LEASE, max_runtime_sec=2))["job_id"]
        await trio.sleep(10)
        store.broken = False
        await trio.sleep(5)
        await peer.drop()
        again = await peers.connect()
        await again.hello(resume=peer.resume_from())
        frames = await until_end(again, job_id)
    (child,) = born(frames)
    assert ends(frames) == [child, job_id]
    assert begun == []


async def test_a_job_that_ends_as_it_starts_is_not_called_stubborn(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A job whose end is decided in the step in which it starts is at its end at once."""
    agents_called: list[str] = []
    delegating = Agents()

    @delegating.agent("leaf")
    async def leaf(job: JobContext) -> Json:
        agents_called.append(job.id)
        await trio.sleep_forever()

    @delegating.agent("hasty")
    async def hasty(job: JobContext) -> Json:
        """Delegate, and end at a moment that differs from job to job."""
        await job.delegate("leaf")
        for _ in range(job.input):
            await trio.lowlevel.checkpoint()
        return None

    async with make_runtime(delegating) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        for moment in range(20):
            lease = {"agent.delegate": ["leaf"]}
            parent = await peer.submit("hasty", moment, lease_request=lease)
            await until_end(peer, parent["job_id"])
        await trio.sleep(2 * GRACE)
    assert 0 < len(agents_called) < 20
    assert "agent does not stop" not in caplog.text
