"""A job: an agent at work, owned by the runtime and by nothing that can be lost (§7)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.job import fence, outcome
from arcp_trio.runtime.job.agents import Agent
from arcp_trio.runtime.job.journal import Journal
from arcp_trio.runtime.job.outcome import Outcome
from arcp_trio.runtime.job.streamed_result import StreamedResult
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.records import Status
from arcp_trio.store.writes import StartJob
from arcp_trio.wire.errors import ArcpError, InternalError, LeaseExpired, error_from_payload
from arcp_trio.wire.json import Json, dumps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal

    from arcp_trio.authority.authority import Authority
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.credentials.wallet import Wallet
    from arcp_trio.runtime.job.context import JobContext
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.tracing import Span

log = logging.getLogger(__name__)

FRAME_ALLOWANCE = 512
"""Bytes of a frame around its payload, at most."""


@attrs.define(eq=False, kw_only=True)
class Job:
    """Lives in the runtime's nursery; knows its watchers by session id, and no connection."""

    core: Core
    jobs: Jobs
    id: str
    agent: Agent
    input: Json
    principal: str
    session_id: str
    """The session that submitted it first."""
    trace_id: str
    span: Span
    max_runtime: float | None
    grace: float
    submitters: set[str]
    """Sessions that may cancel it (§7.4)."""
    journal: Journal
    authority: Authority
    streams: bool
    """Chunks of its result go on the wire; else they are kept, and the result is inline (§8.4)."""
    accepted: bool = False
    """Its acceptance is stored, or in the store's queue."""
    wallet: Wallet | None = None
    """What it has credentials in, if it may have any (§9.8)."""
    parent: Job | None = None
    """The job that delegated to it (§10)."""
    delegate_id: str | None = None
    children: dict[str, Job] = attrs.field(factory=dict[str, "Job"])
    """Delegated to, and not at their end."""
    status: Status = Status.PENDING
    begun: float = attrs.field(factory=trio.current_time)
    """On Trio's clock: since when it counts."""
    deadline: float | None = None
    """On Trio's clock, once it runs."""
    said_its_end: trio.Event = attrs.field(factory=trio.Event)
    streamed: StreamedResult | None = None
    """Its result, once the agent has begun to stream one."""
    emits: int = 0
    """Calls in which its agent gave way or could have."""
    _outcome: Outcome | None = None
    sealed: bool = False
    """Its terminal is in the journal: nothing with its id follows."""
    _winding_up: bool = False
    _agent_gone: trio.Event = attrs.field(factory=trio.Event)
    _agent_scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _grace_scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _child_left: Wake = attrs.field(factory=Wake)
    _abandoned: bool = False
    _last_scope: trio.CancelScope = attrs.field(factory=lambda: trio.CancelScope(shield=True))

    # -- running

    async def run(self, context: JobContext) -> None:
        """Run the agent, then say how the job ended, unless `cut_off` had to say it before.

        An end that was decided before the start leaves the agent nothing to do.
        """
        if self._outcome is None:
            await self._work(context)
        self._agent_gone.set()
        await self._finish()

    async def _work(self, context: JobContext) -> None:
        self.status = Status.RUNNING
        self.core.store.put(StartJob(self.id))
        if self.max_runtime is None:
            await self._run_agent(context)
        else:
            self.deadline = trio.current_time() + self.max_runtime
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._time_out, name=f"time limit of {self.id}")
                await self._run_agent(context)
                nursery.cancel_scope.cancel(reason="the agent has ended in time")

    async def _run_agent(self, context: JobContext) -> None:
        try:
            with self._agent_scope, self.span.current():
                self.decide(fence.returned(self, await self.agent.function(context)))
        except BaseException as error:  # noqa: ASYNC103, BLE001 - the fence round an agent
            # Its fault is its own, SystemExit included.
            rest = fence.not_the_agents(error)
            if rest is not None:
                raise rest from None  # noqa: ASYNC104
            self.decide(fence.raised(self, error))

    async def _time_out(self) -> None:
        assert self.deadline is not None
        assert self.max_runtime is not None
        await trio.sleep_until(self.deadline)
        self.end(outcome.timed_out(self.max_runtime))

    @property
    def facts(self) -> dict[str, object]:
        """What every line of the log about this job has."""
        return {
            "job_id": self.id,
            "agent": self.agent.ref,
            "principal": self.principal,
            "session_id": self.session_id,
            "parent_id": None if self.parent is None else self.parent.id,
        }

    def explained(self, error: BaseException) -> ArcpError | None:
        """What an error means to the job that came from where its credentials are used (§9.6)."""
        return None if self.wallet is None else self.wallet.explain(error)

    @property
    def most_bytes(self) -> int:
        """What a payload may take, for its frame to fit."""
        return self.core.limits.frame_bytes_out - FRAME_ALLOWANCE

    # -- ending

    @property
    def outcome(self) -> Outcome | None:
        """How the job ends, from the moment that is decided."""
        return self._outcome

    def decide(self, outcome: Outcome) -> bool:
        """Decide how the job ends, unless that is decided already. It goes on until `wind_up`."""
        if self._outcome is None:
            self._outcome = outcome
            return True
        return False

    def wind_up(self) -> None:
        """Have the agent stopped, now that the end is decided, and cut off if it does not stop."""
        self._agent_scope.cancel(reason="the job is ending")
        self.let_end()

    def let_end(self) -> None:
        """Let the agent go on to its own end, now that the job's is decided, for its grace."""
        self._end_children()
        if not self.accepted:
            if self.wallet is not None:
                self.wallet.close()  # its credentials are not issued, so the job is given up
        elif not self._winding_up:
            self._winding_up = True
            self.jobs.mind_end(self)

    def end(self, outcome: Outcome) -> bool:
        """Decide, and wind up."""
        decided = self.decide(outcome)
        self.wind_up()
        return decided

    def shorten_grace(self, seconds: float) -> None:
        """An agent gets at most this from now on."""
        self.grace = min(self.grace, seconds)
        self._grace_scope.deadline = min(self._grace_scope.deadline, trio.current_time() + seconds)

    async def cut_off(self) -> None:
        """Wait for the agent to stop; after its grace say the end without it."""
        if self.status is Status.PENDING:  # no agent was called, and none will be
            await self._finish()
            return
        self._grace_scope.deadline = min(
            self._grace_scope.deadline, trio.current_time() + self.grace
        )
        with self._grace_scope:
            await self._agent_gone.wait()
            return
        log.warning("agent does not stop: cut off", extra=self.facts)
        self._agent_scope.cancel(reason="the job is over")
        await self._finish()

    def abandon(self) -> None:
        """Wait no longer for a store that does not take the job's end."""
        self._abandoned = True
        self._child_left.set()
        self._last_scope.cancel(reason="the runtime is over")

    async def _finish(self) -> None:
        """Say the terminal: from here on nothing with this job's id follows."""
        self._end_children()
        if self.wallet is not None:
            self.wallet.close()
        while self.children and not self._abandoned:  # leaf first
            await self._child_left.wait()
        if self.wallet is not None:
            await self.wallet.revoked()
        if self.sealed:
            return
        outcome = self._outcome
        assert outcome is not None
        self.sealed = True
        now = self.core.clock.now()
        self.status = outcome.status
        self.core.metrics.finished[outcome.status] += 1
        left = self.authority.budget.remaining
        budget = dumps(left) if left else None
        group = self.journal.finish(outcome, now, budget)
        self.said_its_end.set()
        self.leave_tree()
        self._tell_of_end(outcome, left)
        with self._last_scope:
            await group.committed()
            self.jobs.remove(self)

    def _tell_of_end(self, outcome: Outcome, left: Mapping[str, Decimal]) -> None:
        """Tell the operator."""
        code = None if outcome.error is None else outcome.error.code
        seconds = round(trio.current_time() - self.begun, 3)
        facts = {"outcome": outcome.status, "code": code, "seconds": seconds}
        log.info("job ended", extra=self.facts | facts)
        attributes: dict[str, str | list[str]] = {"arcp.job.outcome": outcome.status}
        if left:
            attributes["arcp.budget.remaining"] = [f"{name}:{sum_}" for name, sum_ in left.items()]
        self.span.end(attributes, code=code)

    # -- parent and children (§10)

    @property
    def depth(self) -> int:
        """How many jobs stand above it."""
        return 0 if self.parent is None else self.parent.depth + 1

    def adopt(self, child: Job) -> None:
        """A child is on its way: from here on this job does not end before it."""
        self.children[child.id] = child

    def tell_of(self, child: Job, accepted: bytes) -> None:
        """A child is accepted: that has its place among this job's events."""
        self.journal.accept_child(child.id, accepted)

    def _end_children(self) -> None:
        for child in self.children.values():
            child.shorten_grace(self.grace)
            child.end(outcome.cancelled("the parent job ended"))

    def part_from(self, child: Job) -> None:
        """A child has said its end, or is not accepted."""
        del self.children[child.id]
        self._child_left.set()

    def leave_tree(self) -> None:
        """Release what the job held of its ancestors' budgets, and let its parent end."""
        self.authority.budget.close()
        if self.parent is not None:
            self.parent.part_from(self)

    # -- what it may (§9.3)

    def authorize(self, capability: str, target: str, *, also: Sequence[str] = ()) -> None:
        """Return if the lease allows it; an expired lease ends the job, if not at once (§9.5).

        Raises:
            LeaseExpired, BudgetExhausted, PermissionDenied: it does not.
        """
        self.refuse_if_sealed()
        try:
            self.authority.check(capability, target, now=trio.current_time(), also=also)
        except LeaseExpired:
            end = outcome.failed(LeaseExpired("the lease expired during execution"))
            if self.decide(end):
                expired = {"expires_at": self.authority.lease.expires_at}
                log.warning("lease expired", extra=self.facts | expired)
            self.let_end()
            raise

    def refuse_if_ending(self) -> None:
        """Begin nothing that would outlast the job.

        Raises:
            ArcpError: its end is decided.
        """
        if self._outcome is not None:
            raise self._ended()

    def refuse_if_sealed(self) -> None:
        """Add nothing behind the terminal.

        Raises:
            ArcpError: it was said.
        """
        if self.sealed:
            raise self._ended()

    def _ended(self) -> ArcpError:
        """A fresh error each time: the agent may raise it, catch it and change it as it likes."""
        assert self._outcome is not None
        error = self._outcome.error
        if error is None:
            return InternalError("the job has ended")
        return error_from_payload(error.payload())
