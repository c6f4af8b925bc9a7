"""A job: an agent at work, owned by the runtime and by nothing that can be lost (§7)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs
import trio
from msgspec.structs import replace

from arcp_trio.runtime.job import costs, outcome
from arcp_trio.runtime.job.agent_run import AgentRun
from arcp_trio.runtime.job.children import Children
from arcp_trio.runtime.job.events import close_calls
from arcp_trio.runtime.job.granting import warn_of_idle_grants
from arcp_trio.runtime.job.journal import Journal
from arcp_trio.runtime.job.last_event import LastEvent
from arcp_trio.runtime.job.outcome import Outcome
from arcp_trio.runtime.job.over import Over
from arcp_trio.runtime.job.provisioning import wallet_for
from arcp_trio.runtime.job.questions import Questions
from arcp_trio.runtime.job.result_chunks import ResultChunks
from arcp_trio.runtime.job.state import GONE, TO_END, JobState
from arcp_trio.runtime.usage import serve_principal
from arcp_trio.store.records import Status
from arcp_trio.store.writes import StartJob
from arcp_trio.wire.errors import InternalError, LeaseExpired

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from arcp_trio.authority.approvals import Approval
    from arcp_trio.authority.authority import Authority
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.credentials.wallet import Wallet
    from arcp_trio.runtime.job.agent import Agent
    from arcp_trio.runtime.job.durable.memory import Memory
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.job.spec import JobSpec
    from arcp_trio.runtime.tracing import Span
    from arcp_trio.store.memos import JournalExtent
    from arcp_trio.store.records import JobRow

log = logging.getLogger(__name__)

FRAME_ALLOWANCE: Final = 512
"""Bytes of a frame around its payload, at most."""


@attrs.define(eq=False, kw_only=True)
class Job:
    """A job from its draft to its stored end, which knows no session and no connection."""

    core: Core
    jobs: Jobs
    id: str
    spec: JobSpec
    submitters: set[str]
    """Sessions that may cancel it (§7.4)."""
    trace_id: str
    span: Span
    journal: Journal
    authority: Authority
    agent_run: AgentRun
    memory: Memory

    state: JobState = JobState.DRAFTED
    """Only `move_to` changes it."""
    outcome: Outcome | None = None
    """How it ends, from the moment when that is decided."""
    wallet: Wallet | None = attrs.field(
        init=False, default=attrs.Factory(wallet_for, takes_self=True)
    )
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

    # -- its spec

    @property
    def agent(self) -> Agent:
        """The agent that it calls."""
        return self.spec.agent

    @property
    def input(self) -> bytes:
        """Its input as JSON, while it is alive."""
        return self.spec.input

    @property
    def principal(self) -> str:
        """The principal that it belongs to."""
        return self.spec.principal

    @property
    def parent(self) -> Job | None:
        """The job that delegated to it (§10)."""
        return self.spec.parent

    def drop_input(self) -> None:
        """Forget the input: a parent that goes on may keep the job, for its result."""
        self.spec = replace(self.spec, input=b"")

    # -- its state

    def move_to(self, state: JobState) -> None:
        """Take the next state, which must be one that may follow."""
        self.state = self.state.then(state)

    @property
    def status(self) -> Status:
        """What clients are told of its state."""
        if self.outcome is not None and self.ended:
            return self.outcome.status
        return Status.PENDING if self.started_at is None else Status.RUNNING

    @property
    def accepted(self) -> bool:
        """Whether its acceptance is stored, or in the store's queue."""
        return self.state is not JobState.DRAFTED

    @property
    def revived(self) -> bool:
        """Whether its agent was called before: by an earlier runtime, or in another process."""
        return self.memory.recall is not None

    @property
    def suspended(self) -> bool:
        """Whether it tells nothing: another runtime goes on with it, or another process will."""
        return self.state in GONE or self.state is JobState.INTERRUPTED

    @property
    def ended(self) -> bool:
        """Whether its terminal is in the journal: nothing with its id follows."""
        return self.state is JobState.ENDED

    # -- its task

    async def run(self) -> None:
        """Run the agent, then finish, unless `stop_agent` had to do that before.

        A job whose end was decided before its start does not call its agent.
        """
        serve_principal(self.principal)
        self.decide_if_late()
        if self.outcome is None and not self.suspended:
            if self.state is JobState.ACCEPTED:
                self.move_to(JobState.RUNNING)
                self.started_at = self.core.clock.now()
                self.core.store.put(StartJob(self.id, self.started_at))
                warn_of_idle_grants(self)
            await self.agent_run.run(self)
            await self.jobs.turn_for_result(self)
        await self._finish()

    def go_on_from(self, row: JobRow, extent: JournalExtent, sessions: Collection[str]) -> None:
        """Go on from what an earlier runtime has left; these `sessions` exist."""
        self.journal.go_on_from(row.length, extent)
        if self.parent is None:
            self.submitters = {row.session_id, *row.submitters}.intersection(sessions)
        self.move_to(JobState.ACCEPTED)
        if row.started_at is not None:
            self.move_to(JobState.RUNNING)
            self.started_at = row.started_at
            self.agent_run.go_on_after(self.core.clock.now() - row.started_at)

    def suspend(self, state: JobState = JobState.SUSPENDED) -> None:
        """Cancel the agent, and leave the job to the next runtime, without an end.

        It is `SUSPENDED`, or `LOST` if it is left only because nothing can be stored any longer.
        """
        is_stopping = self.state is JobState.ENDING
        self.move_to(state)
        self.decided.set()
        self.memory.suspend()
        self.agent_run.cancel("the runtime is shutting down")
        if not is_stopping and (self.revived or self.agent_run.begun):  # else its task is to come
            self.jobs.start_stopping(self)

    async def fail(self) -> None:
        """End the job, in whose task there is a defect."""
        self.decide(outcome.failed(InternalError("the job failed")))
        self.agent_run.cancel("the job failed")
        await self._finish()

    def give_up(self) -> None:
        """Remove the job, which has no end here, and have its credentials revoked."""
        if self.state not in (JobState.LOST, JobState.ENDED):
            self.move_to(JobState.LOST)
        if self.wallet is not None:
            self.wallet.close()
        self.leave_tree()
        self.jobs.remove(self)
        self.span.end({"arcp.job.outcome": "not accepted"}, code=InternalError.code)

    def interrupt(self) -> bool:
        """Take nothing more of a run whose process has died, until `go_on`, if the job is durable.

        Return whether it is: what the process waited for is given up meanwhile, and is not told.
        """
        if self.memory.durable and self.state is JobState.RUNNING and not self.decided.is_set():
            self.move_to(JobState.INTERRUPTED)
        return self.state is JobState.INTERRUPTED

    def go_on(self) -> None:
        """End what `interrupt` began, unless the job was suspended meanwhile."""
        if self.state is JobState.INTERRUPTED:
            self.move_to(JobState.RUNNING)
            if self.outcome is not None:
                self.let_end()
            elif self.core.closing:
                self.suspend()

    @property
    def facts(self) -> dict[str, object]:
        """The job's description in each line of the log about it."""
        return {
            "job_id": self.id,
            "agent": self.agent.ref,
            "principal": self.principal,
            "session_id": self.spec.session_id,
            "parent_id": None if self.parent is None else self.parent.id,
        }

    @property
    def most_payload_bytes(self) -> int:
        """How large a payload may be for its frame not to be too large."""
        return self.core.limits.frame_bytes_out - FRAME_ALLOWANCE

    # -- the end

    def decide(self, outcome: Outcome) -> bool:
        """Decide how the job ends; return False if that was decided before.

        The agent goes on until `wind_up`.
        """
        if self.outcome is None:
            self.outcome = outcome
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
        elif self.state in TO_END:
            self.move_to(JobState.ENDING)
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

    async def stop_agent(self) -> None:
        """Wait for the agent to stop within its grace; finish without it if it does not."""
        if not self.ended and self.agent_run.begun:  # else it is never called
            if await self.agent_run.stopped():
                return
            log.warning("agent does not stop: cut off", extra=self.facts)
            self.agent_run.cancel("the job is over")
        await self._finish()

    async def _finish(self) -> None:
        """End or leave the job: its agent has stopped, or is not waited for any longer.

        The terminal comes after those of the children, and after revocations.
        """
        self.go_on()
        if self.state in TO_END:
            self.move_to(JobState.ENDING)
        if not self.suspended:
            self.children.end_all(self.agent_run.grace)
            if self.wallet is not None:
                self.wallet.close()
            await self.children.none_left()
            if self.wallet is not None:
                await self.wallet.revoked()
        if self.suspended:
            self._leave()
        elif not self.ended:
            await self._write_terminal()

    def _leave(self) -> None:
        """Stop doing anything for the job here, without an end."""
        if not self.over.is_set():
            heir = "the next start" if self.core.store.shared is None else "another node"
            is_lost = self.state is JobState.LOST
            log.info(f"job left to {heir}" if is_lost else "job suspended", extra=self.facts)
            if self.wallet is not None:
                self.wallet.close()
            self.over.set()
            self.leave_tree()
            self.jobs.one_is_left_alone()
            self.span.end({"arcp.job.outcome": "left" if is_lost else "suspended"})

    async def _write_terminal(self) -> None:
        """Write the terminal; the job stays among those alive until it is stored."""
        ends = self.outcome
        assert ends is not None
        close_calls(self)
        self.finished_at = self.core.clock.now()
        self.core.metrics.finished[ends.status] += 1
        group = self.journal.finish(
            ends,
            self.finished_at,
            budget=costs.budget_left(self),
            spent=costs.spent(self),
            last_event=self.last_event.words,
            durable=self.memory.durable,
        )
        self.move_to(JobState.ENDED)
        self.over.set()
        self.leave_tree()
        outcome.log_end(self, ends, self.authority.budget.remaining)
        await group.committed()
        self.jobs.remove(self)

    def refuse_if_suspended(self) -> None:
        """Refuse, with an `InternalError`, to begin anything that belongs to the next run."""
        if self.suspended:
            raise InternalError("the runtime is shutting down, and the job goes on after that")

    def refuse_if_ending(self) -> None:
        """Refuse, with an `ArcpError`, to begin anything that would outlast the job."""
        if self.outcome is not None:
            raise self.outcome.refusal()

    def refuse_if_ended(self) -> None:
        """Refuse, with an `ArcpError`, to add anything after the terminal."""
        if self.ended:
            self.refuse_if_ending()

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
        self.refuse_if_ended()
        try:
            now = trio.current_time()
            self.authority.check(capability, target, now=now, also=also, approvals=approvals)
        except LeaseExpired:
            self._decide_expired()
            self.let_end()
            raise
