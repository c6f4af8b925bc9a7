"""Trees of jobs: however they are ended and whoever is there to see it, leaf first (§10)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Agents, ArcpError, JobContext, Limits, MemoryStore, Runtime
from arcp_trio.testing import Peer, open_peers
from arcp_trio.testing.background import background_tasks
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.wire.json import Json
from tests.durability.stores import crash
from tests.durability.support import FailingStore
from tests.reading import until_end
from tests.stage import make_runtime

GRACE = Limits().cancel_grace_seconds
DEPTH = 8
LEASE: Frame = {"agent.delegate": ["*"]}
END_OF_PARENT = ("cancelled", "CANCELLED", "the parent job ended")


agents = Agents()
"""They have others work below them."""


@agents.agent("chain")
async def chain(job: JobContext) -> Json:
    """So many levels below this one, each stubborn or not, then wait."""
    levels, stubborn = job.input
    with trio.CancelScope(shield=stubborn):
        if levels:
            await job.delegate("chain", [levels - 1, stubborn], lease=LEASE)
        else:
            await job.log("the leaf is there")
        await trio.sleep(1000)


@agents.agent("fan")
async def fan(job: JobContext) -> Json:
    """So many children, which log two lines each, one after the other; a line between."""
    for n in range(job.input):
        child = await job.delegate("talker", n)
        await job.log(f"before {n}")
        await child.result()
        await job.log(f"after {n}")
        await trio.sleep(1)


@agents.agent("talker")
async def talker(job: JobContext) -> Json:
    """Two lines, a second each."""
    for line in ("a", "b"):
        await job.log(f"{job.input}{line}")
        await trio.sleep(1)


@agents.agent("loud")
async def loud(job: JobContext) -> Json:
    """So many long lines at once."""
    for _ in range(job.input):
        await job.log("x" * 1000)


@agents.agent("parent")
async def parent(job: JobContext) -> Json:
    """A child, waited for or not."""
    agent, input_, wait = job.input
    child = await job.delegate(agent, input_, lease=LEASE)
    await trio.sleep(1)
    if wait:
        await child.result()


@pytest.fixture
def runtime(runtime: Runtime) -> Runtime:
    """A runtime with the agents that delegate, too."""
    runtime.add(agents)
    return runtime


def ends(frames: list[Frame]) -> list[str]:
    """The jobs that have ended, in this order."""
    return [frame["job_id"] for frame in frames if frame["type"] in TERMINAL]


def born(frames: list[Frame]) -> list[str]:
    """The children that were accepted, in this order."""
    return [
        frame["job_id"]
        for frame in frames
        if frame["type"] == "job.accepted" and "parent_job_id" in frame["payload"]
    ]


def why(frame: Frame) -> tuple[str, str, str]:
    """How a job ended."""
    payload = frame["payload"]
    return payload["final_status"], payload["code"], payload["message"]


async def chained(peer: Peer, *, stubborn: bool, **fields: Json) -> tuple[str, list[Frame]]:
    """A chain as deep as may be, all of it at work, and what was told of it."""
    chain: Json = [DEPTH, stubborn]
    root = (await peer.submit("chain", chain, lease_request=LEASE, **fields))["job_id"]
    frames: list[Frame] = []
    while not frames or frames[-1]["payload"].get("kind") != "log":
        frames.append(await peer.receive())
    return root, frames


# -- the end of a tree


@pytest.mark.spec("7.4-1", "7.4-2", "10-1")
@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_cancelled_root_takes_the_tree_along(
    peer: Peer, *, stubborn: bool, autojump_clock: MockClock
) -> None:
    """Leaf first, all at once or after one grace that the whole tree shares."""
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
    """A root that runs too long is timed out, what is below it cancelled."""
    began = trio.current_time()
    root, frames = await chained(peer, stubborn=stubborn, max_runtime_sec=5)
    frames += await until_end(peer, root)
    assert ends(frames) == [*reversed(born(frames)), root]
    assert frames[-1]["payload"]["final_status"] == "timed_out"
    assert trio.current_time() - began == pytest.approx(5 + (GRACE if stubborn else 0))


async def test_the_middle_of_a_tree_may_be_cancelled(peer: Peer, autojump_clock: MockClock) -> None:
    """Whoever submitted the root may: what is below ends, what is above goes on."""
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
    """Its end is decided and does not change; it is said once the child's is."""
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
    """The parent's end gives a child that is ending already no more time."""
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
    """Each client hears of every job's end, leaf first; agents that stay are cut off."""
    runtime = make_runtime()
    runtime.add(agents)
    async with background_tasks() as nursery, runtime:
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
    """Nothing is said until it is stored, then all of it, in order; nobody waits for ever."""
    store = FailingStore()
    async with make_runtime(store=store) as runtime, open_peers(runtime) as peers:
        runtime.add(agents)
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
    """It ends with its parent, having done nothing, once both ends can be stored."""
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


# -- who sees it


def talk(frames: list[Frame]) -> list[str]:
    """What jobs logged, in order."""
    return [f["payload"]["body"]["message"] for f in frames if f["payload"].get("kind") == "log"]


FAN = ["before 0", "0a", "0b", "after 0", "before 1", "1a", "1b", "after 1"]


@pytest.mark.spec("8.3-1", "8.3-2", "10-1")
@pytest.mark.parametrize("drop_after", range(14))
async def test_a_client_may_be_lost_anywhere_in_a_tree(
    runtime: Runtime, drop_after: int, autojump_clock: MockClock
) -> None:
    """Having resumed it has seen all of it once, in the order in which it happened."""
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
    """Children included, from their first events on, in its own numbers; it may cancel them."""
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
    """Its session closed before anything of it happened; whoever submits it again sees it all."""
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
    """Nobody's tree becomes one that cannot be stopped, neither root nor child."""
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
    """Its session sees each job's one end behind all it had emitted, leaf first."""
    store = MemoryStore()
    async with make_runtime(store=store) as runtime, open_peers(runtime) as peers:
        runtime.add(agents)
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


# -- bounds


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_child_waits_for_a_slow_submitter_from_its_first_event_on(
    *, leaves: bool, autojump_clock: MockClock
) -> None:
    """Also for one that is not yet told of it, as long as that one is attached."""
    lines = 1000
    limits = Limits(journal_bytes=400_000, tail_frames=8)
    async with make_runtime(limits=limits) as runtime, open_peers(runtime) as peers:
        runtime.add(agents)

        @runtime.agent("root")
        async def root(job: JobContext) -> Json:
            # More than is on its way to a client that does not read, and then than its tail takes.
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
    """Each cost is told in the journals above, too: those keep to their bound, though silent."""
    store, bound = MemoryStore(), 100_000
    runtime = make_runtime(store=store, limits=Limits(journal_bytes=bound))
    async with runtime, open_peers(runtime) as peers:
        runtime.add(agents)

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
        assert len(store.tables.journals) == 3
        for journal in store.tables.journals.values():
            assert journal.base + len(journal.entries) > 2_000
            assert sum(len(entry.tail) for entry in journal.entries) < 1.2 * bound
