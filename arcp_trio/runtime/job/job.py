"""A job: an agent at work, owned by the runtime and by nothing that can be lost (§7)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.job.agent import Agent
from arcp_trio.runtime.job.agent_run import AgentRun
from arcp_trio.runtime.job.children import Children
from arcp_trio.runtime.job.ending import finish
from arcp_trio.runtime.job.granting import warn_of_idle_grants
from arcp_trio.runtime.job.journal import Journal
from arcp_trio.runtime.job.last_event import LastEvent
from arcp_trio.runtime.job.outcome import Outcome
from arcp_trio.runtime.job.over import Over
from arcp_trio.runtime.job.questions import Questions
from arcp_trio.runtime.job.refusing import refuse_if_ended
from arcp_trio.runtime.job.result_chunks import ResultChunks
from arcp_trio.runtime.usage import serve_principal
from arcp_trio.store.records import Status
from arcp_trio.store.writes import StartJob
from arcp_trio.wire.errors import LeaseExpired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arcp_trio.authority.approvals import Approval
    from arcp_trio.authority.authority import Authority
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.credentials.wallet import Wallet
    from arcp_trio.runtime.job.durable.memory import Memory
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.tracing import Span

log = logging.getLogger(__name__)

FRAME_ALLOWANCE: Final = 512
"""Bytes of a frame around its payload, at most."""


@attrs.define(eq=False, kw_only=True)
class Job:
    """A job from its draft to its stored end, which knows no session and no connection."""

    core: Core
    jobs: Jobs
    id: str
    agent: Agent
    input: bytes
    """As JSON."""
    principal: str
    session_id: str
    """The session that submitted it first."""
    submitters: set[str]
    """Sessions that may cancel it (§7.4)."""
    trace_id: str
    span: Span
    journal: Journal
    authority: Authority
    agent_run: AgentRun
    memory: Memory
    sends_chunks: bool
    """Whether chunks of its result go on the wire; if not, they are kept for an inline result."""
    knows_questions: bool = False
    """Whether the client that submitted it can be asked for approvals."""
    parent: Job | None = None
    """The job that delegated to it (§10)."""
    delegate_id: str | None = None
    forget: bool = False
    """The job leaves listings soon after its end."""

    status: Status = Status.PENDING
    accepted: bool = False
    """Its acceptance is stored, or in the store's queue."""
    ended: bool = False
    """Its terminal is in the journal: nothing with its id follows."""
    revived: bool = False
    """An earlier runtime has begun it."""
    suspended: bool = False
    """The next runtime calls its agent again. Until then only results of steps are taken."""
    wallet: Wallet | None = None
    """Its credentials, if it may have any (§9.8)."""
    chunks: ResultChunks | None = None
    """Its result, once the agent has begun to stream one."""
    children: Children = attrs.field(factory=Children)
    """Jobs that it delegated to and that have not ended."""
    open_calls: set[str] = attrs.field(factory=set[str])
    """The ids of tool calls that were told of and have no result yet."""
    questions: Questions = attrs.field(factory=Questions)
    """What it asks people."""
    last_event: LastEvent = attrs.field(factory=LastEvent)
    started_at: float | None = None
    """When its agent was called, on the runtime's clock."""
    finished_at: float | None = None
    costs_over: int = 0
    """The costs beyond its budget that this run of it has reported."""
    almost_cost_told: bool = False
    """Its clients have been warned of a metric that seems to be a cost."""
    emits: int = 0
    """How often its agent has emitted."""
    drafted_at: float = attrs.field(factory=trio.current_time)
    """When it was drafted, on Trio's clock."""
    decided: trio.Event = attrs.field(factory=trio.Event)
    """Set once it is decided how the job ends, or that it is suspended."""
    over: Over = attrs.field(factory=Over)
    left_to: str | None = None
    """The one that ends it, if it is suspended only because nothing can be stored any longer."""
    _outcome: Outcome | None = None
    _is_between_runs: bool = False
    """Its process has died, and what that waited for is being given up."""
    _is_stopping: bool = False
    """A task waits for the agent to stop."""

    async def run(self) -> None:
        """Run the agent, then finish, unless `stop_agent` had to do that before.

        A job whose end was decided before its start does not call its agent.
        """
        serve_principal(self.principal)
        self.decide_if_late()
        if self._outcome is None and not self.suspended:
            if self.started_at is None:
                self.status = Status.RUNNING
                self.started_at = self.core.clock.now()
                self.core.store.put(StartJob(self.id, self.started_at))
                warn_of_idle_grants(self)
            await self.agent_run.run(self)
            await self.jobs.turn_for_result(self)
        await finish(self)

    def suspend(self, left_to: str | None = None) -> None:
        """Cancel the agent, and leave the job to the next runtime, without an end.

        `left_to` says who ends it, if it is left only because nothing can be stored any longer.
        """
        self.suspended = True
        self.left_to = left_to
        self.decided.set()
        self.memory.suspend()
        self.agent_run.cancel("the runtime is shutting down")
        if self.revived or self.agent_run.begun:  # else its start is yet to come, or it is given up
            self._start_stopping()

    def leave_run(self) -> bool:
        """Have the job as a suspended one until `go_on`, if it is durable: its process has died.

        What the dead process waits for is given up meanwhile, and is not told.
        """
        self._is_between_runs = self.memory.durable and not self.decided.is_set()
        self.suspended = self.suspended or self._is_between_runs
        return self._is_between_runs

    def go_on(self) -> None:
        """End what `leave_run` began, unless the runtime is about to end."""
        if self._is_between_runs:
            self._is_between_runs = self.suspended = False
            if self.core.closing and self._outcome is None:
                self.suspend()

    @property
    def facts(self) -> dict[str, object]:
        """The job's description in each line of the log about it."""
        return {
            "job_id": self.id,
            "agent": self.agent.ref,
            "principal": self.principal,
            "session_id": self.session_id,
            "parent_id": None if self.parent is None else self.parent.id,
        }

    @property
    def most_payload_bytes(self) -> int:
        """How large a payload may be for its frame not to be too large."""
        return self.core.limits.frame_bytes_out - FRAME_ALLOWANCE

    # -- the end

    @property
    def outcome(self) -> Outcome | None:
        """How the job ends, from the moment when that is decided."""
        return self._outcome

    def decide(self, outcome: Outcome) -> bool:
        """Decide how the job ends; return False if that was decided before.

        The agent goes on until `wind_up`.
        """
        if self._outcome is None:
            self._outcome = outcome
            self.decided.set()
            return True
        return False

    def wind_up(self) -> None:
        """Cancel the agent, now that the end is decided, and bound the time it takes to stop."""
        self.agent_run.cancel("the job is ending")
        self.let_end()

    def let_end(self) -> None:
        """Bound the time that the agent has left, now that the end is decided; do not cancel it."""
        self.children.end_all(self.agent_run.grace)
        if not self.accepted:
            if self.wallet is not None:
                self.wallet.close()  # so that no credentials are issued, and the job is given up
        else:
            self._start_stopping()

    def _start_stopping(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self.jobs.start_stopping(self)

    def end(self, outcome: Outcome) -> None:
        """Decide how the job ends, unless that is decided, and wind it up."""
        self.decide(outcome)
        self.wind_up()

    @property
    def lease_is_over(self) -> bool:
        """Whether its lease has expired, and the grace after that has passed."""
        deadline = self.authority.deadline
        return deadline is not None and trio.current_time() >= deadline

    def decide_if_late(self) -> None:
        """Decide the end of a job that must not go on, by the earlier of its deadlines."""
        timed_out = self.agent_run.timed_out(self.authority.deadline)
        if timed_out is not None:
            self.decide(timed_out)
        elif self.lease_is_over:
            self._decide_expired()

    def expire(self) -> None:
        """End the job, whose lease is over (§9.5)."""
        self._decide_expired()
        self.wind_up()

    def _decide_expired(self) -> None:
        if self.decide(outcome.failed(LeaseExpired("the lease expired during execution"))):
            expired = {"expires_at": self.authority.lease.expires_at}
            log.warning("lease expired", extra=self.facts | expired)

    # -- parent and children (§10)

    def leave_tree(self) -> None:
        """Release what the job held of its ancestors' budgets, and let its parent end."""
        self.authority.budget.close()
        if self.parent is not None:
            self.parent.children.remove(self)

    # -- what its agent may do

    def authorize(
        self,
        capability: str,
        target: str,
        *,
        also: Sequence[str] = (),
        approvals: Sequence[Approval] = (),
    ) -> None:
        """Return if the lease allows the operation (§9.3); an expired lease ends the job (§9.5).

        Raises:
            LeaseExpired, BudgetExhausted, PermissionDenied: the lease does not allow it.
        """
        refuse_if_ended(self)
        try:
            now = trio.current_time()
            self.authority.check(capability, target, now=now, also=also, approvals=approvals)
        except LeaseExpired:
            self._decide_expired()
            self.let_end()
            raise
