"""A node among the others: it gives signs of life, and adopts what a dead node has left."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.groups import consists_of
from arcp_trio.runtime.clock import StoreClock
from arcp_trio.runtime.cluster.judging import NodeJudge
from arcp_trio.runtime.restart import Leaver, settle
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.nodes import NodeState
from arcp_trio.store.outage import Outage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from arcp_trio.runtime.cluster.waiting import WaitingJobs
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.durable.beginnings import Beginnings
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.store.nodes import NodeRow, Nodes, RollCall
    from arcp_trio.store.records import Recovered

log = logging.getLogger(__name__)

BEATS: Final = 5
"""Signs of life in the time after which a node is taken for dead."""

ASK_SECONDS: Final = 1.0
"""How long a node that is about to end waits for the database to say which others there are."""

CLOCK_SECONDS: Final = 1.0
"""How far the clock of a node may be off that of the database."""


class Members:
    """Knows the other nodes by their signs of life, as of this node's last one."""

    def __init__(
        self, core: Core, jobs: Jobs, beginnings: Beginnings, nodes: Nodes, waiting: WaitingJobs
    ) -> None:
        self._core = core
        self._waiting = waiting
        self._jobs = jobs
        self._beginnings = beginnings
        self._nodes = nodes
        self._judge = NodeJudge(nodes.node, core.limits.node_seconds)
        core.node_names = {nodes.node: nodes.name}
        self._newest: RollCall | None = None
        self._cut_off = False
        """The last beat did not go through."""
        self._dead: dict[int, NodeRow] = {}
        """Nodes to be adopted."""
        self._adopting: set[int] = set()
        self._found_dead = Wake()

    # -- what is known of the others

    async def others_up(self) -> bool:
        """Ask whether another node takes sessions and jobs: the last beat knows of no newer ones.

        Without an answer, what that beat has seen counts, if it went through.
        """
        rows: Sequence[NodeRow] = ()
        if self._newest is not None and not self._cut_off:
            rows = self._newest.nodes
        with trio.move_on_after(ASK_SECONDS):
            try:
                rows = await self._nodes.nodes()
            except (StoreError, Fenced) as error:
                log.warning("other nodes not asked for", extra={"error": str(error)})
        return any(row.state == NodeState.UP and row.node != self._nodes.node for row in rows)

    def trouble(self) -> str | None:
        """Return why this node should get no clients now; None if it may."""
        if self._newest is None:
            return "not among the other nodes, yet"
        if self._cut_off:
            return "the database does not answer"
        ahead = self._newest.ahead
        if abs(ahead) > CLOCK_SECONDS:
            return f"the clock of this machine is {abs(ahead):.1f} s off that of the database"
        return None

    # -- the life of this node

    async def run(self, over: Callable[[], None]) -> None:
        """Give signs of life and adopt dead nodes, until cancelled.

        Args:
            over: is called as soon as this node is gone, in another thread.

        Raises:
            Fenced: this node is gone.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._adopt_dead, nursery, name="adoptions")
            interval = self._core.limits.node_seconds / BEATS
            await self._nodes.beat(interval, self._see, over)

    def _see(self, call: RollCall | None) -> None:
        dead = self._judge.dead(call)
        self._cut_off = call is None
        if call is not None:
            self._newest = call
            self._core.node_names = {row.node: row.name for row in call.nodes}
            self._core.metrics.nodes = Counter(row.state for row in call.nodes)
            self._core.metrics.clock_offset = call.ahead
            clock = self._core.clock
            if isinstance(clock, StoreClock):
                clock.correct(call.ahead)
        if dead:
            self._dead |= {row.node: row for row in dead}
            self._found_dead.set()

    async def _adopt_dead(self, nursery: trio.Nursery) -> None:
        await self._core.taken_over.wait()
        while True:
            dead, self._dead = self._dead, {}
            for row in dead.values():
                # One that ends leaves that to the others, or to the next start.
                if row.node not in self._adopting and not self._core.closing:
                    self._adopting.add(row.node)
                    nursery.start_soon(self._adopt, row, name=f"adoption of node {row.node}")
            await self._found_dead.wait()

    async def _adopt(self, dead: NodeRow) -> None:
        """Take over from a dead node, unless another node does."""
        facts = {"other": dead.name, "number": dead.node}
        leaver = Leaver("the job's node was lost", "took over from another node", facts)
        try:
            with self._waiting.taking():
                found = await self._take_over(dead, facts)
                if found is None:
                    return
                log.warning("node is dead, and adopted", extra=facts)
                self._core.metrics.adoptions += 1
                found = await self._waiting.sift(found)
                revived = await settle(self._core, self._jobs, found, leaver)
            await self._beginnings.run(revived)
        except Exception as error:  # a fence: what one node has left must not end all others
            if consists_of(error, Fenced):
                raise
            log.exception("jobs of an adopted node are not settled", extra=facts)

    async def _take_over(self, dead: NodeRow, facts: Mapping[str, object]) -> Recovered | None:
        """Adopt a node; ask again while it is not known whether it is adopted."""
        outage = Outage(log, "node not adopted, yet", facts)
        try:
            return await outage.outlast(partial(self._nodes.adopt, dead))
        finally:
            self._adopting.discard(dead.node)
