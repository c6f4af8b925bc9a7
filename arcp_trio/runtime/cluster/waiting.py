"""Durable jobs that wait for a node: one that has their agents takes them."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from msgspec.structs import replace

from arcp_trio.runtime.cluster.obeying import with_cancels
from arcp_trio.runtime.restart import Leaver, settle
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.outage import Outage
from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.json import loads_object

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.durable.beginnings import Beginnings
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.store.records import JobRow, Recovered
    from arcp_trio.store.shared import Shared

log = logging.getLogger(__name__)

NO_NODE: Final = Leaver("no node could go on with it", "took jobs that waited for a node")

TAKING_SECONDS: Final = 1.0
"""How long a node that is about to end waits for jobs that it is just taking."""


class WaitingJobs:
    """Leaves durable jobs to other nodes, and takes those that other nodes have left."""

    def __init__(self, core: Core, jobs: Jobs, beginnings: Beginnings, shared: Shared) -> None:
        self._core = core
        self._jobs = jobs
        self._beginnings = beginnings
        self._shared = shared
        self._taking = 0
        """How many times jobs are being taken that are not alive here, yet."""
        self._settled = Wake()

    @contextmanager
    def taking(self) -> Generator[None]:
        """Take jobs in the block, at whose end they are alive here, or have ended."""
        self._taking += 1
        try:
            yield
        finally:
            self._taking -= 1
            self._settled.set()

    async def sift(self, found: Recovered) -> Recovered:
        """Leave the jobs whose agents this node does not have, and return the rest.

        A job that is to end needs no agent.
        """
        found = await with_cancels(self._core.store, self._shared, found)
        left: dict[str, str] = {}
        for row in found.unfinished:  # parents before their children
            if row.job_id in found.durable and (_parent(row) in left or self._is_foreign(row)):
                left[row.job_id] = row.agent
        if not left:
            return found
        outage = Outage(log, "jobs not left to other nodes, yet")
        await outage.outlast(partial(self._shared.leave_jobs, left))
        facts = {"jobs": len(left), "agents": ", ".join(sorted({*left.values()}))}
        log.info("durable jobs wait for a node with their agents", extra=facts)
        return replace(found, unfinished=[r for r in found.unfinished if r.job_id not in left])

    def _is_foreign(self, row: JobRow) -> bool:
        if row.cancelled is not None:
            return False  # it needs no agent to end
        try:
            self._jobs.agents.resolve(row.agent)
        except ArcpError:
            return True
        return False

    async def take(self, seconds: float) -> None:
        """Take jobs that wait, every few seconds, until cancelled."""
        await self._core.taken_over.wait()
        outage = Outage(log, "no jobs taken that wait for a node")
        async with trio.open_nursery() as nursery:
            while not self._core.closing:
                with outage:
                    await self._take(nursery, seconds)
                await trio.sleep(seconds)

    async def _take(self, nursery: trio.Nursery, seconds: float) -> None:
        limits = self._core.limits
        agents = [agent.ref for agent in self._jobs.agents if agent.durable]
        most = max(1, int(limits.jobs_begun_per_second * seconds))
        with self.taking():
            found = await self._shared.take_jobs(agents, most, limits.orphan_seconds)
            if found is None:
                return
            found = await with_cancels(self._core.store, self._shared, found)
            revived = await settle(self._core, self._jobs, found, NO_NODE)
        nursery.start_soon(self._beginnings.run, revived, name="jobs that have waited")

    async def leave(self, seconds: float) -> None:
        """Leave the durable jobs to other nodes, once their agents have stopped.

        Those that do not stop within `seconds` stay here, until this node is adopted. What is just
        being taken is left after the others.
        """
        taking = self._taking
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._leave_suspended, seconds, name="durable jobs are left")
            with trio.move_on_after(TAKING_SECONDS):
                while self._taking:
                    await self._settled.wait()
        if taking:
            await self._leave_suspended(seconds)

    async def _leave_suspended(self, seconds: float) -> None:
        self._jobs.suspend_all()
        suspended = [job for job in self._jobs.live.values() if job.suspended]
        for job in suspended:
            job.agent_run.shorten_grace(seconds)
        with trio.move_on_after(seconds):
            for job in suspended:
                await job.over.wait()
        stopped = [job for job in suspended if job.over.is_set()]
        with trio.move_on_after(self._core.limits.close_seconds):
            await self._core.store.flushed()
            await self._hand_over(stopped)

    async def _hand_over(self, stopped: list[Job]) -> None:
        for job in stopped:
            self._jobs.remove(job)  # what another node asks of it is that of its next node
        try:
            await self._shared.leave_jobs([job.id for job in stopped])
        except (StoreError, Fenced) as error:
            log.warning("jobs not left to other nodes", extra={"error": str(error)})


def _parent(row: JobRow) -> str | None:
    parent = loads_object(row.accepted).get("parent_job_id")
    return None if parent is None else str(parent)
