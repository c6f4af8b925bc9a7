"""A node among the others, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from arcp_trio.store.nodes import NodeRow, Nodes, Seen
from arcp_trio.store.postgres import _adopting, _nodes
from arcp_trio.store.postgres._adopting import Taken
from arcp_trio.store.postgres._beats import BeatThread
from arcp_trio.store.postgres._connections import DatabaseThread, Membership
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.records import Recovered

NO_NODE: Final = 0
"""Stands for the node of jobs that wait for one."""


class PostgresNodes(Nodes):
    """What a node does and knows of the others; its beats have a connection of their own."""

    def __init__(self, membership: Membership, line: DatabaseThread) -> None:
        """Make it for a node that is yet to join.

        Args:
            membership: the node.
            line: the connection for everything but beats; its calls may wait for locks.
        """
        self._membership = membership
        self._line = line
        self._taken: dict[int, Taken] = {}
        """By node that is gone: what was taken over, or perhaps was, and is yet to be read."""

    @property
    def node(self) -> int:
        """The number of this node."""
        return self._membership.node

    @property
    def name(self) -> str:
        """The name of this node."""
        return self._membership.name

    async def beat(self, seconds: float, seen: Seen, over: Callable[[], None]) -> None:
        """Give a sign of life every `seconds`, until cancelled."""
        await BeatThread(self._membership, seconds, seen, over).run()

    async def adopt(self, dead: NodeRow) -> Recovered | None:
        """Take over what another node has left."""
        if dead.node not in self._taken:
            address = self._membership.address
            await self._line.run(lambda db: _nodes.terminate(db, address, dead.node))
            await self._line.transact(partial(self._take_over, dead))
        return await self._read_taken(dead.node)

    def _take_over(self, dead: NodeRow, db: Database) -> None:
        taken = _adopting.adopt(db, self.node, dead, self.resume_window_seconds)
        if taken is not None:
            # If the answer to the commit is lost, what was taken over is read all the same.
            self._taken[dead.node] = taken

    async def leave_jobs(self, job_ids: Collection[str]) -> None:
        """Have durable jobs of this node wait for one that has their agents."""
        await self._line.transact(partial(_adopting.leave_jobs, me=self.node, job_ids=job_ids))

    async def take_jobs(
        self, agents: Sequence[str], most: int, orphan_seconds: float
    ) -> Recovered | None:
        """Take jobs that wait, with those below them."""

        def take(db: Database) -> None:
            taken = _adopting.take_jobs(db, self.node, agents, most, orphan_seconds)
            if taken.jobs:
                self._taken[NO_NODE] = taken

        if NO_NODE not in self._taken:
            await self._line.transact(take)
        return await self._read_taken(NO_NODE)

    async def _read_taken(self, node: int) -> Recovered | None:
        if node not in self._taken:
            return None
        taken, me = self._taken[node], self.node

        def read(db: Database) -> Recovered | None:
            _nodes.wait_for_own(db, me)  # a commit whose answer is lost may yet take effect
            with db.transaction():
                db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                return _adopting.taken_from(db, me, node, taken)

        found = await self._line.run(read)
        del self._taken[node]
        return found

    async def nodes(self) -> Sequence[NodeRow]:
        """Return all nodes, those that are gone last."""
        return await self._line.run(_nodes.nodes)

    async def drain(self) -> None:
        """Let the other nodes know that this one is about to end."""
        await self._line.transact(partial(_nodes.drain, me=self.node))

    async def leave(self) -> None:
        """Be gone, unless there is something that another node has to adopt."""
        window = self.resume_window_seconds
        await self._line.transact(partial(_nodes.leave, me=self.node, window=window))
