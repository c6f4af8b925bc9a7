"""Jobs in worker processes that delegate to agents in worker processes. In real time."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from arcp_trio import Limits
from arcp_trio.runtime.workers import control
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.processes import children_are, gone
from tests.workers.support import GRACE, PATIENT, end_of, open_with_workers, run
from tests.workers.waiting_agents import MANY

LEASE: Json = {"agent.delegate": ["*"]}


@asynccontextmanager
async def open_orderly(count: int, limits: Limits | None = None) -> AsyncGenerator[Peer, None]:
    """Open a runtime with a warm worker, and a peer; after the block all workers are in order."""
    async with open_with_workers(count, limits) as peer:
        zygote = await zygote_of(peer)
        yield peer
        await left_in_order(peer, zygote, count)


async def zygote_of(peer: Peer) -> int:
    """Return the process of which the workers are children."""
    return int((await run(peer, "about"))["result"]["parent"])


async def left_in_order(peer: Peer, zygote: int, count: int) -> None:
    """See that there are as many workers as there should be, and that jobs still have them."""
    await children_are(zygote, count)
    for _ in range(count + 1):
        end = await run(peer, "nested", ["nested"], lease_request=LEASE)
        assert len(set(end["result"])) == 2
    await children_are(zygote, count)


async def lasting_tree(peer: Peer, path: Path) -> Frame:
    """Begin a job with a child in its place that lasts, and another child that waits for it."""
    input_ = [["lasting", str(path / "begun"), None], ["nested", [], None]]
    tree = await peer.submit("several", input_, lease_request=LEASE)
    while not (path / "begun").exists():  # noqa: ASYNC110 - another process makes it
        await trio.sleep(0.01)
    return tree


async def cancelled(peer: Peer, job: Frame) -> None:
    """Cancel a job, and see its end."""
    await peer.send("job.cancel", {"job_id": job["job_id"]})
    assert (await end_of(peer, job))["code"] == "CANCELLED"


@pytest.mark.parametrize(
    "below", [["nested"], ["between", "nested"], ["nested", "between", "nested", "nested"]]
)
async def test_a_child_has_the_place_of_a_job_that_waits_for_it(below: list[str]) -> None:
    """One worker is enough for a tree, whatever its depth and wherever its agents run."""
    async with open_orderly(1) as peer:
        end = await run(peer, "nested", below, lease_request=LEASE)
        assert len(set(end["result"])) == len({"between"} & set(below)) + 1 + below.count("nested")


async def test_a_job_lends_its_place_however_many_children_it_waits_for() -> None:
    """A child has its parent's place although the parent has begun to wait for many others."""
    limits = Limits(cancel_grace_seconds=GRACE, children_per_job=2 * MANY, jobs_per_principal=1_000)
    async with open_orderly(1, limits) as peer:
        assert (await run(peer, "large-family", lease_request=LEASE))["result"] is True


async def test_parents_that_have_all_workers_do_not_block_each_other() -> None:
    """Four trees at once have an end, although there are two workers."""
    async with open_orderly(2) as peer:
        trees = [await peer.submit("nested", ["nested"], lease_request=LEASE) for _ in range(4)]
        for each in trees:
            assert len(set((await end_of(peer, each))["result"])) == 2


async def test_a_place_is_lent_to_one_child_at_a_time() -> None:
    """Children that wait for their parent's place have it one after the other."""
    async with open_with_workers(1) as peer:
        input_ = [["computing", 0.1, None]] * 4
        end = await run(peer, "several", input_, lease_request=LEASE)
        times = sorted(end["result"])
        assert all(former[1] <= later[0] for former, later in pairwise(times))


async def test_a_place_is_lent_to_no_other_tree() -> None:
    """A job that was there before the child waits until the parent has left its place."""
    async with open_with_workers(1) as peer:
        parent = await peer.submit("several", [["computing", 1, None]], lease_request=LEASE)
        other = await peer.submit("computing", 0)
        [[_, child_ended]] = (await end_of(peer, parent))["result"]
        other_began, _ = (await end_of(peer, other))["result"]
        assert child_ended <= other_began


async def test_children_in_turn_need_few_processes() -> None:
    """A borrower's process is used by the next borrower, and replaced after as many jobs as any."""
    async with open_orderly(1) as peer:
        used = (await run(peer, "in-turn", 7, lease_request=LEASE))["result"]
        assert sorted(used.count(each) for each in set(used)) == [1, 3, 3]


async def test_a_child_that_ends_while_it_waits_for_a_place_leaves_the_place() -> None:
    """A time limit ends the wait for a place; the sibling in it, and the parent, go on."""
    async with open_orderly(1) as peer:
        input_ = [["computing", 2, None], ["nested", [], 0.5], ["nested", [], None]]
        end = await run(peer, "several", input_, lease_request=LEASE)
        first, late, last = end["result"]
        assert (len(first), late, len(last)) == (2, "TIMEOUT", 1)


async def test_a_tree_that_is_cancelled_leaves_its_place(tmp_path: Path) -> None:
    """Parent, child in the parent's place and child that waits for it end together."""
    async with open_orderly(1) as peer:
        tree = await lasting_tree(peer, tmp_path)
        await cancelled(peer, tree)


async def test_a_parent_may_leave_before_its_borrower(tmp_path: Path) -> None:
    """A parent gives up its wait and returns: its place is free when the child has ended, too."""
    async with open_orderly(1) as peer:
        end = await run(peer, "leaving-early", str(tmp_path / "begun"), lease_request=LEASE)
        assert end["result"] == "left"


@pytest.mark.logs_error("worker lost")
async def test_a_borrower_whose_worker_dies_gives_the_place_back() -> None:
    """The parent is told, and its next child has the place."""
    async with open_orderly(1) as peer:
        input_ = [["dying", None, None], ["dying", None, None]]
        end = await run(peer, "several", input_, lease_request=LEASE)
        assert end["result"] == ["INTERNAL_ERROR"] * 2


@pytest.mark.logs_error("worker processes lost")
@pytest.mark.logs_error("worker lost")
async def test_the_end_of_the_zygote_leaves_no_place_taken(tmp_path: Path) -> None:
    """The tree fails with its workers, and the workers of the next zygote are as many."""
    async with open_with_workers(1) as peer:
        zygote = await zygote_of(peer)
        tree = await lasting_tree(peer, tmp_path)
        os.kill(zygote, signal.SIGKILL)
        assert (await end_of(peer, tree))["code"] == "INTERNAL_ERROR"
        while "result" not in (await run(peer, "about")):  # noqa: ASYNC110 - jobs are refused
            await trio.sleep(0.1)
        await left_in_order(peer, await zygote_of(peer), 1)


@pytest.mark.logs_error("worker processes lost .*the zygote gives no answer")
async def test_a_zygote_that_stands_still_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that need it wait for no longer than it may take to answer; later ones have another."""
    async with open_with_workers(1) as peer:
        stopped = await zygote_of(peer)
        monkeypatch.setattr(control, "ANSWER_SECONDS", 2.0)
        os.kill(stopped, signal.SIGSTOP)
        ends = [await run(peer, "about") for _ in range(8)]
        while "result" not in ends[-1]:
            await trio.sleep(0.1)
            ends.append(await run(peer, "about"))
        assert {end["code"] for end in ends if "result" not in end} <= {"INTERNAL_ERROR"}
        assert ends[-1]["result"]["parent"] != stopped
        await gone([stopped])


@pytest.mark.parametrize("agent", ["talker", "asyncio-sleeper", "trio-sleeper"])
async def test_a_cancelled_job_leaves_its_worker_to_the_next(agent: str, tmp_path: Path) -> None:
    """A worker whose agent ends well when it is cancelled is not replaced."""
    async with open_with_workers(1, PATIENT) as peer:
        before = (await run(peer, "about"))["result"]["pid"]
        job = await peer.submit(agent, str(tmp_path / "clean"))
        await peer.expect("job.event")
        await cancelled(peer, job)
        assert (await run(peer, "about"))["result"]["pid"] == before
