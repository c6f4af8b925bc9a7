"""The runtime: opens what lives as long as the process, and closes it in order."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from arcp_trio.groups import leaves, unwrapped
from arcp_trio.runtime.access import Authenticator, Policy
from arcp_trio.runtime.clock import Clock, StoreClock, SystemClock
from arcp_trio.runtime.connection.attendance import Attendance
from arcp_trio.runtime.core import Core
from arcp_trio.runtime.credentials.provisioner import Provisioner
from arcp_trio.runtime.credentials.revocation import Revoker
from arcp_trio.runtime.job import leftovers
from arcp_trio.runtime.job.agents import Agents
from arcp_trio.runtime.job.durable.beginnings import Beginnings
from arcp_trio.runtime.job.granting import reserved_paths
from arcp_trio.runtime.job.jobs import Jobs
from arcp_trio.runtime.limits import Limits
from arcp_trio.runtime.prometheus import exposition
from arcp_trio.runtime.restart import take_over
from arcp_trio.runtime.session.local_parking import LocalParking
from arcp_trio.runtime.session.sessions import Sessions
from arcp_trio.runtime.shutdown import end_connections, end_jobs, leave_at_once, leave_to_others
from arcp_trio.runtime.tasks import first_of, keep_running
from arcp_trio.runtime.tracing import FencedTracer, NoTracer, Tracer
from arcp_trio.runtime.views import View, ViewTokens
from arcp_trio.runtime.watchdog import Watchdog
from arcp_trio.runtime.workers.pool import WorkerPool
from arcp_trio.runtime.workers.settings import Workers
from arcp_trio.store.errors import Fenced
from arcp_trio.store.interface import Store
from arcp_trio.store.memory import MemoryStore
from arcp_trio.transport.base import Transport
from arcp_trio.under_trio import need_trio
from arcp_trio.version import __version__

if TYPE_CHECKING:
    from arcp_trio.runtime.cluster.cluster import Cluster

log = logging.getLogger(__name__)


class Runtime:
    """Runs agents as jobs, and serves the sessions of their clients.

    Register agents, then enter it: `async with runtime:`. Jobs and sessions live in its nursery
    until the block ends, whatever happens to connections. Leaving the block, by
    cancellation or otherwise, ends the jobs, delivers their terminals to the clients that are
    connected, and closes the store, each within a bound.
    """

    _jobs: Jobs
    _sessions: Sessions
    _attendance: Attendance
    # Made on entry: they need the runtime's nurseries.

    def __init__(
        self,
        *,
        auth: Authenticator,
        store: Store | None = None,
        name: str = "arcp-trio",
        limits: Limits | None = None,
        clock: Clock | None = None,
        operators: Iterable[str] = (),
        policy: Policy | None = None,
        provisioner: Provisioner | None = None,
        tracer: Tracer | None = None,
        workers: Workers | None = None,
        signing_key: bytes | Callable[[], bytes] | None = None,
    ) -> None:
        """Make a runtime that keeps everything in `store`, which is memory by default.

        Args:
            auth: takes a bearer token, returns its principal or None.
            name: the name that clients are told.
            operators: principals that may cancel any job.
            policy: what is allowed where the specification leaves it open.
            provisioner: mints credentials for jobs (§9.8). It needs a durable store, which
                remembers what has to be revoked.
            tracer: gets a span per job and per tool call (§11);
                `arcp_trio.telemetry.opentelemetry` has one.
            workers: the processes of agents with `process=True`.
            signing_key: 32 secret bytes or more, with which `token_for` signs, or a function that
                returns them when they are first needed. Without it, a key is made, and tokens are
                good for as long as this runtime runs; runtimes that share a store share a key.
        """
        if not callable(auth):
            raise TypeError(
                "auth is an async function that returns the principal of a token, such as"
                f' arcp_trio.StaticTokens({{"a token": "alice"}}), not a {type(auth).__name__}'
            )
        store, policy = store or MemoryStore(), policy or Policy()
        self.agents = Agents()
        self.agent = self.agents.agent
        """Registers the function below as an agent; see `Agents.agent`."""
        self.limits = (limits or Limits()).within(store.most_bytes)
        if store.shared is not None:
            store.shared.resume_window_seconds = self.limits.resume_window_seconds
        self._core = Core(
            name=name,
            version=__version__,
            authenticate=auth,
            operators=frozenset(operators),
            store=store,
            limits=self.limits,
            policy=policy,
            reserved_paths=reserved_paths(policy, store),
            clock=clock or (SystemClock() if store.shared is None else StoreClock()),
            tracer=NoTracer() if tracer is None else FencedTracer(tracer),
            view_tokens=ViewTokens(signing_key or _shared_key(store)),
        )
        self._workers = WorkerPool(workers or Workers(), self.agents)
        self._revoker = Revoker(self._core, provisioner)
        if provisioner is not None and not self._revoker.offered:
            log.warning("provisioned_credentials is not offered: the store is not durable")
        self._nursery: trio.Nursery | None = None
        self._over = trio.Event()
        self._running: AbstractAsyncContextManager[None] | None = None
        self._block = trio.CancelScope()
        """The block of `async with runtime`."""
        self._store_failure: BaseException | None = None
        """Why nothing can be stored any longer, although the block has not ended."""
        self._cluster: Cluster | None = None
        """Made on entry, if the store is one that several runtimes share."""
        self.when_fenced: Callable[[], None] = _do_nothing
        """Called, perhaps in another thread, as soon as this node is gone and has to end."""

    # -- agents

    def add(self, agents: Agents) -> None:
        """Register all agents of a registry."""
        self.agents.add(agents)

    # -- short-lived tokens

    def token_for(self, principal: str, seconds: float, job_id: str | None = None) -> str:
        """Return a token with which one can look at jobs, and do nothing else, for a short time.

        It is for web pages and links: signed, and stored nowhere, so it cannot be taken back. It
        opens sessions that list and subscribe; everything else is refused, and at the end of its
        time the connection is closed.

        Args:
            principal: sees its own jobs; nobody has to have authenticated as it.
            seconds: how long the token is good for, at most a day.
            job_id: the one job that can be looked at, if the principal may observe it.

        Raises:
            ValueError: the principal is empty, or the time is not above 0, or more than a day.
            InternalError: `signing_key` has failed; the log says why.
        """
        if not principal:
            raise ValueError("a token is for a principal; the name is empty")
        view = View.lasting(seconds, principal, job_id, now=self._core.clock.now())
        return self._core.view_tokens.sign(view)

    # -- connections

    @property
    def clock(self) -> Clock:
        """The wall clock."""
        return self._core.clock

    def start_connection(self, serve: Callable[[], Awaitable[None]], name: str) -> None:
        """Run a connection in the runtime's nursery: its failure ends nothing else."""
        assert self._nursery is not None, "serve has made sure of it"
        self._attendance.start(serve, name)

    @property
    def entered(self) -> bool:
        """Whether the block `async with runtime` has begun."""
        return self._running is not None

    async def over(self) -> None:
        """Wait until the runtime takes no more connections."""
        await self._over.wait()

    def ready(self) -> str | None:
        """Return why the runtime takes no work at the moment, or None if it does."""
        core = self._core
        if core.closing or self._over.is_set():
            return "shutting down"
        if core.store.trouble is not None:
            return "the store cannot be used"
        if self._nursery is None or not core.taken_over.is_set():
            return "starting"
        return None if self._cluster is None else self._cluster.members.trouble()

    async def attend(
        self, transport: Transport, *, deadline: float, welcomed: Callable[[], None] | None = None
    ) -> None:
        """Run one connection until it ends; its client has until `deadline` to open a session.

        `welcomed` is called once the session is open. A deadline of `math.inf` means that the
        client cannot connect again: its malformed frames are answered instead of ending it.
        """
        await self._attendance.attend(transport, deadline, welcomed)

    # -- figures

    @property
    def abandoned_threads(self) -> int:
        """How many threads of agents run on although their jobs have ended."""
        return self._jobs.threads.abandoned

    def connection_failed(self, reason: str) -> None:
        """Count a connection that failed before it was attended to.

        `reason` is one of a few fixed words (letters, digits, `_`), never text from a peer.
        """
        self._core.metrics.connection_failed(reason)

    def exposition(self) -> str:
        """Return the metrics for Prometheus (text format 0.0.4)."""
        assert self._nursery is not None, "the runtime has not been entered"
        return exposition(self._core, self._sessions, len(self._attendance))

    # -- its life

    async def __aenter__(self) -> Self:
        need_trio("an arcp_trio.Runtime")
        if self._running is not None:
            raise RuntimeError("a runtime runs once; make another")
        self._running = self._run()
        await self._running.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._running is not None
        # Bounds itself: see shutdown.
        return await self._running.__aexit__(kind, error, traceback)  # noqa: ASYNC102

    @asynccontextmanager
    async def _run(self) -> AsyncGenerator[None]:
        error: BaseException | None = None  # raised at the end as itself, not in a group
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            try:
                await nursery.start(self._live, stop, name="runtime")
                with self._block:
                    yield
            except BaseException as raised:  # noqa: ASYNC103, BLE001
                error = unwrapped(raised) if self._nursery is None else raised
            try:
                if self._nursery is not None:
                    with trio.CancelScope(shield=True):
                        await self.shutdown()
            finally:  # Ctrl-C may cut the shutdown short
                stop.set()
                self._over.set()
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
                    self._jobs = Jobs(core, self.agents, self._revoker, self._workers, jobs)
                    beginnings = Beginnings(core, self._jobs)
                    self._sessions = self._make_sessions(beginnings, sessions)
                    self._attendance = Attendance(core, self._sessions, sessions)
                    sessions.start_soon(keep_running, self._revoker.run, name="revocations")
                    if self._cluster is not None:
                        sessions.start_soon(self._be_a_node, self._cluster, name="node")
                    sift = None if self._cluster is None else self._cluster.waiting.sift
                    restart = partial(take_over, core, self._sessions, beginnings, sift)
                    sessions.start_soon(restart, name="restart")
                    # A store in trouble does not stop the start: clients are told of it.
                    await first_of(core.taken_over.wait, core.store.troubled)
                    sessions.start_soon(keep_running, self._sessions.sweep, name="sweep")
                    sessions.start_soon(
                        keep_running, self._sessions.mind_store, name="store trouble"
                    )
                    sessions.start_soon(
                        keep_running, leftovers.sweep, core, self.agents, name="files of jobs"
                    )
                    sessions.start_soon(keep_running, self._attendance.beat, name="heartbeats")
                    sessions.start_soon(self._workers.run, name="worker processes")
                    if self.agents.durable() and not core.store.outlasts_process:
                        log.warning("durable jobs end with this process: the store is not durable")
                    sessions.start_soon(Watchdog(core.metrics, core.usages).run, name="watchdog")
                    self._nursery = sessions
                    log.info("runtime started", extra={"version": __version__})
                    task_status.started()
                    await stop.wait()
                    self._jobs.close()
                    sessions.cancel_scope.cancel(reason="the runtime is over")
                patience = 0 if self._store_failure else self.limits.close_seconds
                with trio.move_on_after(patience) as flushing:
                    await core.store.flushed()
                if flushing.cancelled_caught:
                    log.warning("store not flushed, the next start or other nodes go on")
                if self._cluster is not None and self._store_failure is None:
                    await self._cluster.leave()
                log.info("runtime over")
                writer.cancel_scope.cancel(reason="the runtime is over")

    def _make_sessions(self, beginnings: Beginnings, nursery: trio.Nursery) -> Sessions:
        core, jobs = self._core, self._jobs
        if core.store.shared is None:
            return Sessions(core, jobs, LocalParking(core, jobs), nursery)
        # Not before: a runtime that is alone does not even import it.
        from arcp_trio.runtime.cluster.cluster import Cluster  # noqa: PLC0415

        cluster = self._cluster = Cluster(core, jobs, beginnings, core.store.shared)
        return Sessions(core, jobs, cluster.parking, nursery, cluster.asker)

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
            if scope.cancel_called or self._nursery is None:
                raise
            self._fail(error, "store writer failed")

    async def _be_a_node(self, cluster: Cluster) -> None:
        """Be one of several nodes, until cancelled."""
        try:
            await cluster.run(self._sessions, self.when_fenced)
        except* Exception as error:
            if self._nursery is None:
                raise
            self._fail(error, "node failed")

    def _fail(self, error: BaseException, what: str) -> None:
        """End the block, as nothing can be stored any longer."""
        if self._store_failure is not None:
            return
        # Several parts of a node learn at once that it is gone.
        fenced = [each for each in leaves(error) if isinstance(each, Fenced)]
        self._store_failure = fenced[0] if fenced else unwrapped(error)
        if fenced:
            self.when_fenced()
            log.critical("node is gone, others go on", extra={"error": str(fenced[0])})
        else:
            log.critical(what, exc_info=error)
        self._block.cancel(reason="nothing can be stored any longer")

    async def shutdown(self, drain: float = 0) -> None:
        """Refuse new work, let jobs go on for `drain` seconds, end the rest, close connections."""
        core, jobs, sessions = self._core, self._jobs, self._sessions
        if not core.closing:
            log.info("shutting down", extra={"jobs": len(jobs.live), "drain_seconds": drain})
        core.closing = True
        if isinstance(self._store_failure, Fenced):
            await leave_at_once(core, jobs, self._attendance)
            return
        jobs.suspend_all()
        drain_ends = trio.current_time() + drain
        if self._cluster is not None and self._cluster.members.others_up:
            await leave_to_others(core, sessions, self._attendance, self._cluster.drain)
        with trio.move_on_at(drain_ends):
            await jobs.none_left(but_suspended=True)
        jobs.suspend_all()  # those that were taken over meanwhile
        await end_jobs(core, jobs, store_failed=self._store_failure is not None)
        await end_connections(core, sessions, self._attendance)


def _do_nothing() -> None:
    pass


def _shared_key(store: Store) -> Callable[[], bytes] | None:
    """Return what has the key that all nodes sign with, once the store is open."""
    shared = store.shared
    return None if shared is None else lambda: shared.signing_key
