"""Worker places: who may use those of jobs that wait for their children. In virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final, cast

import attrs
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.runtime.job.job import Job
from arcp_trio.runtime.workers.places import MOST_IN_PLACE, Stay, WorkerPlaces

DEPTH: Final = 4
LONG: Final = 1_000


@attrs.frozen
class Tree:
    """What a job and those below it do."""

    in_worker: bool
    thinking: float
    """How many seconds it waits for people."""
    seconds: float
    """When the job is cancelled."""
    all_at_once: bool
    """Whether it waits for all its children at the same time."""
    patience: float
    """After that many seconds it gives up a wait, to wait once more in the end."""
    below: Sequence[Tree]


@attrs.define
class _Asked:
    """What places know of a job's questions."""

    are_open: bool = False


@attrs.define(eq=False)
class _StandIn:
    """What places know of a job."""

    id: str
    principal: str
    parent: _StandIn | None
    children: list[_StandIn] = attrs.field(factory=list["_StandIn"])
    over: trio.Event = attrs.field(factory=trio.Event)
    questions: _Asked = attrs.field(factory=_Asked)


def _trees(depth: int) -> st.SearchStrategy[Tree]:
    return st.builds(
        Tree,
        in_worker=st.booleans(),
        thinking=st.sampled_from([0, 0, 3]),
        seconds=st.sampled_from([LONG, LONG, 1.5, 4]),
        all_at_once=st.booleans(),
        patience=st.sampled_from([LONG, 0.7]),
        below=st.lists(_trees(depth - 1), max_size=3) if depth > 1 else st.just([]),
    )


def _thinks(tree: Tree) -> bool:
    return bool(tree.thinking) or any(map(_thinks, tree.below))


class _Forest:
    """Jobs that work a while, have children, and wait for them."""

    def __init__(self, count: int) -> None:
        self.places = WorkerPlaces(count)
        self.most_processes = count

    async def run(self, tree: Tree, job: _StandIn) -> None:
        """Run a job with all that is below it."""
        try:
            with trio.move_on_after(tree.seconds):
                if tree.in_worker:
                    with self.places.stay(cast("Job", job)) as stay:
                        await stay.given.wait()
                        self.most_processes = max(self.most_processes, self.places.processes)
                        await self._work(tree, job, stay)
                else:
                    await self._work(tree, job, None)
        finally:
            job.over.set()
            if job.parent is not None:
                job.parent.children.remove(job)

    async def _work(self, tree: Tree, job: _StandIn, stay: Stay | None) -> None:
        await trio.sleep(1)
        if tree.thinking:
            job.questions.are_open = True
            self.places.lend_place_of(cast("Job", job))
            await trio.sleep(tree.thinking)
            job.questions.are_open = False
        children = [_StandIn(f"{job.id}.{n}", job.principal, job) for n in range(len(tree.below))]
        async with trio.open_nursery() as nursery:
            for child, below in zip(children, tree.below, strict=True):
                job.children.append(child)
                nursery.start_soon(self.run, below, child)
                if tree.all_at_once:
                    nursery.start_soon(_wait, stay, child, tree.patience)
                else:
                    await _wait(stay, child, tree.patience)
            await trio.sleep(1)
            for child in children:
                await _wait(stay, child, LONG)


async def _wait(stay: Stay | None, child: _StandIn, patience: float) -> None:
    with (
        trio.move_on_after(patience),
        nullcontext() if stay is None else stay.awaits(child.id),
    ):
        await child.over.wait()


@given(st.integers(1, 3), st.lists(_trees(DEPTH), min_size=1, max_size=4))
def test_no_trees_of_jobs_block_each_other(count: int, trees: list[Tree]) -> None:
    """All jobs of any trees end, with no more workers than places times what one may lend."""

    async def main() -> None:
        forest = _Forest(count)
        with trio.fail_after(LONG / 2):
            async with trio.open_nursery() as nursery:
                for number, tree in enumerate(trees):
                    job = _StandIn(str(number), f"principal {number % 2}", None)
                    nursery.start_soon(forest.run, tree, job)
        lent = DEPTH if not any(map(_thinks, trees)) else MOST_IN_PLACE + DEPTH
        assert forest.most_processes <= count * lent
        assert forest.places.processes == count

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
