"""The lifetime of a runtime: its tasks and nurseries, and the order in which they begin and end."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from arcp_trio.groups import consists_of, leaves, unwrapped
from arcp_trio.runtime.connection.attendance import Attendance
from arcp_trio.runtime.core import Core
from arcp_trio.runtime.credentials.revocation import Revoker
from arcp_trio.runtime.job import leftovers
from arcp_trio.runtime.job.agents import Agents
from arcp_trio.runtime.job.durable.beginnings import RESTARTED, Beginnings
from arcp_trio.runtime.job.jobs import Jobs
from arcp_trio.runtime.restart import BeforeLoss, take_over
from arcp_trio.runtime.session.local_parking import LocalParking
from arcp_trio.runtime.session.sessions import Sessions
from arcp_trio.runtime.session.sweeping import sweep
from arcp_trio.runtime.shutdown import end_connections, end_jobs, leave_at_once, leave_to_others
from arcp_trio.runtime.tasks import first_of, keep_running
from arcp_trio.runtime.watchdog import Watchdog
from arcp_trio.runtime.workers.pool import WorkerPool
from arcp_trio.store.errors import Fenced
from arcp_trio.version import __version__

if TYPE_CHECKING:
    from arcp_trio.runtime.cluster.cluster import Cluster

log = logging.getLogger(__name__)


class Lifetime:
    """Owns every task of a runtime, from the entry of its block to the end of its store."""

    jobs: Jobs
    sessions: Sessions
    attendance: Attendance
    # Made on entry: they need the runtime's nurseries.

    def __init__(self, core: Core, agents: Agents, revoker: Revoker, workers: WorkerPool) -> None:
        self.started = False
        """Whether connections can come."""
        self.over = trio.Event()
        """Set once no more connections are taken."""
        self.cluster: Cluster | None = None
        """Made on entry, if the store is one that several runtimes share."""
        self.when_fenced: Callable[[], None] = _do_nothing
        """Called, perhaps in another thread, as soon as this node is gone and has to end."""
        self.before_loss: BeforeLoss | None = None
        """Awaited before a start ends durable jobs, as their agents are not registered."""
        self._core = core
        self._agents = agents
        self._revoker = revoker
        self._workers = workers
        self._block = trio.CancelScope()
        """The block of `async with runtime`."""
        self._store_failure: BaseException | None = None
        """Why nothing can be stored any longer, although the block has not ended."""

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Have the runtime for the length of the block."""
        error: BaseException | None = None  # raised at the end as itself, not in a group
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            try:
                await nursery.start(self._live, stop, name="runtime")
                with self._block:
                    yield
            except BaseException as raised:  # noqa: ASYNC103, BLE001
                error = raised if self.started else _why_not_started(raised)
            try:
                if self.started:
                    with trio.CancelScope(shield=True):
                        await self.shutdown()
            finally:  # Ctrl-C may cut the shutdown short
                stop.set()
                self.over.set()
        if error is None:
            error = self._store_failure
        if error is not None:
            raise error

    async def _live(
        self, stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Own every task of the runtime. Shielded: only `stop` ends them, in order, jobs first."""
        core = self._core
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as writer:
                await writer.start(self._write, writer.cancel_scope, name="store writer")
                async with trio.open_nursery() as sessions, trio.open_nursery() as jobs:
                    beginnings = self._make_parts(sessions, jobs)
                    await self._start_tasks(sessions, beginnings)
                    self.started = True
                    log.info("runtime started", extra={"version": __version__})
                    task_status.started()
                    await stop.wait()
                    self.jobs.close()
                    sessions.cancel_scope.cancel(reason="the runtime is over")
                patience = 0 if self._store_failure else self._core.limits.close_seconds
                with trio.move_on_after(patience) as flushing:
                    await core.store.flushed()
                if flushing.cancelled_caught:
                    log.warning("store not flushed, the next start or other nodes go on")
                if self.cluster is not None and self._store_failure is None:
                    await self.cluster.leave()
                log.info("runtime over")
                writer.cancel_scope.cancel(reason="the runtime is over")

    def _make_parts(self, sessions: trio.Nursery, jobs: trio.Nursery) -> Beginnings:
        """Make what needs the runtime's nurseries."""
        core = self._core
        self.jobs = Jobs(core, self._agents, self._revoker, self._workers, jobs)
        beginnings = Beginnings(core, self.jobs, RESTARTED)
        if core.store.shared is None:
            self.sessions = Sessions(core, self.jobs, LocalParking(core, self.jobs), sessions)
        else:
            # Not before: a runtime that is alone does not even import it.
            from arcp_trio.runtime.cluster.cluster import Cluster  # noqa: PLC0415

            cluster = self.cluster = Cluster(core, self.jobs, core.store.shared)
            self.sessions = Sessions(core, self.jobs, cluster.parking, sessions, cluster.asker)
        self.attendance = Attendance(core, self.sessions, sessions)
        return beginnings

    async def _start_tasks(self, nursery: trio.Nursery, beginnings: Beginnings) -> None:
        """Start what the runtime does by itself, and wait until it can take sessions."""
        core, sessions, cluster = self._core, self.sessions, self.cluster
        nursery.start_soon(keep_running, self._revoker.run, name="revocations")
        if cluster is not None:
            be_a_node = partial(cluster.run, sessions, self.when_fenced)
            nursery.start_soon(self._depend_on, be_a_node, "node failed", name="node")
        sift = None if cluster is None else cluster.waiting.sift
        restart = partial(take_over, core, sessions, beginnings, sift, self.before_loss)
        nursery.start_soon(self._depend_on, restart, "restart failed", name="restart")
        # A store in trouble does not stop the start: clients are told of it.
        await first_of(core.taken_over.wait, core.store.troubled)
        nursery.start_soon(keep_running, partial(sweep, core, self.jobs, sessions), name="sweep")
        nursery.start_soon(keep_running, sessions.mind_store, name="store trouble")
        nursery.start_soon(keep_running, sessions.mind_tokens, name="tokens")
        nursery.start_soon(keep_running, sessions.openings.mind, name="handshakes")
        nursery.start_soon(keep_running, leftovers.sweep, core, self._agents, name="files of jobs")
        nursery.start_soon(keep_running, self.attendance.beat, name="heartbeats")
        nursery.start_soon(self._workers.run, name="worker processes")
        if self._agents.durable() and not core.store.outlasts_process:
            log.warning("durable jobs end with this process: the store is not durable")
        nursery.start_soon(Watchdog(core.metrics, core.usages).run, name="watchdog")

    async def _write(  # noqa: ASYNC128 - the store calls task_status.started()
        self,
        scope: trio.CancelScope,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run the store's writer, until `scope` is cancelled.

        A writer that fails is not run again: what it left unstored would be lost in silence. The
        block of `async with runtime` is cancelled instead, and the runtime shuts down in order.
        """
        core = self._core
        try:
            await core.store.run(core.metrics.commits.observe, task_status=task_status)
        except BaseException as error:  # noqa: ASYNC103
            if not self.started:
                raise
            if scope.cancel_called:
                # At the end of a node that is gone, it may be storing something, in vain.
                _, others = BaseExceptionGroup("store writer failed", [error]).split(Fenced)
                if others is not None:
                    raise others from None  # noqa: ASYNC104
            else:
                self._fail(error, "store writer failed")

    async def _depend_on(self, work: Callable[[], Awaitable[None]], failed: str) -> None:
        """Do what the runtime cannot go on without: its failure ends the block."""
        try:
            await work()
        except* Exception as error:
            if not self.started:
                raise
            self._fail(error, failed)

    def _fail(self, error: BaseException, what: str) -> None:
        """End the block, as nothing can be stored any longer."""
        if self._store_failure is not None:
            return
        # Several parts of a node learn at once that it is gone.
        fenced, others = BaseExceptionGroup(what, [error]).split(Fenced)
        self._store_failure = unwrapped(error) if fenced is None else leaves(fenced)[0]
        if fenced is not None:
            self.when_fenced()
            log.critical("node is gone, others go on", extra={"error": str(self._store_failure)})
        if others is not None:
            log.critical(what, exc_info=unwrapped(others))
        self._block.cancel(reason="nothing can be stored any longer")

    async def shutdown(self, drain: float = 0) -> None:
        """Refuse new work, let jobs go on for `drain` seconds, end the rest, close connections."""
        core, jobs, sessions = self._core, self.jobs, self.sessions
        if not core.closing:
            facts = {"jobs": len(jobs.live), **jobs.unfinished(), "drain_seconds": drain}
            log.info("shutting down", extra=facts)
        core.closing = True
        if isinstance(self._store_failure, Fenced):
            await leave_at_once(core, jobs, self.attendance)
            return
        jobs.suspend_all()
        drain_ends = trio.current_time() + drain
        if self.cluster is not None and await self.cluster.members.others_up():
            await leave_to_others(core, sessions, self.attendance, self.cluster.drain)
        with trio.move_on_at(drain_ends):
            await jobs.none_left(but_suspended=True)
        jobs.suspend_all()  # those that were taken over meanwhile
        await end_jobs(core, jobs, store_failed=self._store_failure is not None)
        await end_connections(core, sessions, self.attendance)


def _why_not_started(error: BaseException) -> BaseException:
    """Return the one error of a start; several parts of a node may learn that it is gone."""
    return leaves(error)[0] if consists_of(error, Fenced) else unwrapped(error)


def _do_nothing() -> None:
    pass
