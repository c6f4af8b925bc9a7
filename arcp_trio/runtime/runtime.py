"""The runtime: opens what lives as long as the process, and closes it in order."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from arcp_trio.runtime.access import Authentication, Authenticator, Policy
from arcp_trio.runtime.clock import Clock, StoreClock, SystemClock
from arcp_trio.runtime.core import Core
from arcp_trio.runtime.credentials.provisioner import Provisioner
from arcp_trio.runtime.credentials.revocation import Revoker
from arcp_trio.runtime.job.agents import Agents
from arcp_trio.runtime.job.granting import reserved
from arcp_trio.runtime.lifetime import Lifetime
from arcp_trio.runtime.limits import Limits
from arcp_trio.runtime.prometheus import exposition
from arcp_trio.runtime.tracing import FencedTracer, NoTracer, Tracer
from arcp_trio.runtime.views import View, ViewTokens
from arcp_trio.runtime.workers.pool import WorkerPool
from arcp_trio.runtime.workers.settings import Workers
from arcp_trio.store.interface import Store
from arcp_trio.store.memory import MemoryStore
from arcp_trio.transport.base import Transport
from arcp_trio.under_trio import need_trio
from arcp_trio.version import __version__

log = logging.getLogger(__name__)


class Runtime:
    """Runs agents as jobs, and serves the sessions of their clients.

    Register agents, then enter it: `async with runtime:`. Jobs and sessions live in its nursery
    until the block ends, whatever happens to connections. Leaving the block, by
    cancellation or otherwise, ends the jobs, delivers their terminals to the clients that are
    connected, and closes the store, each within a bound.
    """

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
            auth: takes a bearer token, returns its principal or None; see `recheck_tokens`.
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
        clock = clock or (SystemClock() if store.shared is None else StoreClock())
        self._core = Core(
            name=name,
            version=__version__,
            authentication=Authentication(auth, clock),
            operators=frozenset(operators),
            store=store,
            limits=self.limits,
            policy=policy,
            reserved=reserved(policy, store),
            clock=clock,
            tracer=NoTracer() if tracer is None else FencedTracer(tracer),
            view_tokens=ViewTokens(signing_key or _shared_key(store)),
        )
        revoker = Revoker(self._core, provisioner)
        if provisioner is not None and not revoker.offered:
            log.warning("provisioned_credentials is not offered: the store is not durable")
        pool = WorkerPool(workers or Workers(), self.agents)
        self._lifetime = Lifetime(self._core, self.agents, revoker, pool)
        self._running: AbstractAsyncContextManager[None] | None = None

    # -- agents

    def add(self, agents: Agents) -> None:
        """Register all agents of a registry."""
        self.agents.add(agents)

    # -- tokens

    def recheck_tokens(self) -> None:
        """Have clients go whose tokens the authenticator no longer accepts.

        Their connections end with UNAUTHENTICATED, and their sessions can be resumed only with
        another token. An authenticator without a method `still_good` cannot say whose tokens these
        are; then all clients are disconnected, and have to present their tokens to resume.
        """
        self._core.authentication.changed.set()

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
        assert self._lifetime.started, "serve has made sure of it"
        self._lifetime.attendance.start(serve, name)

    @property
    def entered(self) -> bool:
        """Whether the block `async with runtime` has begun."""
        return self._running is not None

    async def over(self) -> None:
        """Wait until the runtime takes no more connections."""
        await self._lifetime.over.wait()

    def ready(self) -> str | None:
        """Return why the runtime takes no work at the moment, or None if it does."""
        core, lifetime = self._core, self._lifetime
        if core.closing or lifetime.over.is_set():
            return "shutting down"
        if core.store.trouble is not None:
            return "the store cannot be used" + (
                ": the disk is full" if core.store.disk_full else ""
            )
        if not lifetime.started or not core.taken_over.is_set():
            return "starting"
        return None if lifetime.cluster is None else lifetime.cluster.members.trouble()

    async def attend(
        self, transport: Transport, *, deadline: float, welcomed: Callable[[], None] | None = None
    ) -> None:
        """Run one connection until it ends; its client has until `deadline` to open a session.

        `welcomed` is called once the session is open. A deadline of `math.inf` means that the
        client cannot connect again: its malformed frames are answered instead of ending it.
        """
        await self._lifetime.attendance.attend(transport, deadline, welcomed)

    # -- figures

    @property
    def abandoned_threads(self) -> int:
        """How many threads of agents run on although their jobs have ended."""
        return self._lifetime.jobs.threads.abandoned

    def end_waits_for(self) -> str:
        """Return what keeps the runtime from its end, in words; any thread may ask."""
        lifetime = self._lifetime
        if not lifetime.started:
            return "the start"
        if jobs := len(lifetime.jobs.live):
            return f"jobs whose agents do not stop: {jobs}"
        if connections := len(lifetime.attendance):
            return f"connections that are not closed yet: {connections}"
        return "threads that do not stop" if lifetime.over.is_set() else "the store"

    def connection_failed(self, reason: str) -> None:
        """Count a connection that failed before it was attended to.

        `reason` is one of a few fixed words (letters, digits, `_`), never text from a peer.
        """
        self._core.metrics.connection_failed(reason)

    def exposition(self) -> str:
        """Return the metrics for Prometheus (text format 0.0.4)."""
        assert self._lifetime.started, "the runtime has not been entered"
        return exposition(self._core, self._lifetime.sessions, len(self._lifetime.attendance))

    # -- its life

    async def __aenter__(self) -> Self:
        need_trio("an arcp_trio.Runtime")
        if self._running is not None:
            raise RuntimeError("a runtime runs once; make another")
        self._running = self._lifetime.run()
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

    def when_fenced(self, act: Callable[[], None]) -> None:
        """Have `act` called, perhaps in another thread, as soon as other nodes go on without this.

        The runtime then ends by itself.
        """
        self._lifetime.when_fenced = act

    def before_loss(self, ask: Callable[[Mapping[str, int]], Awaitable[None]]) -> None:
        """Have `ask` awaited before a start ends durable jobs whose agents are not registered.

        It is told how many these are, by agent. If it raises, the runtime does not start, and
        nothing has changed.
        """
        self._lifetime.before_loss = ask

    def unfinished(self) -> Mapping[str, int]:
        """Return how many jobs are `ending` with the runtime, and `going_on` after it.

        Of those that end, some are `waiting_for_people`.
        """
        return self._lifetime.jobs.unfinished()

    async def shutdown(self, drain: float = 0) -> None:
        """Refuse new work, let jobs go on for `drain` seconds, end the rest, close connections."""
        await self._lifetime.shutdown(drain)


def _shared_key(store: Store) -> Callable[[], bytes] | None:
    """Return what has the key that all nodes sign with, once the store is open."""
    shared = store.shared
    return None if shared is None else lambda: shared.signing_key
