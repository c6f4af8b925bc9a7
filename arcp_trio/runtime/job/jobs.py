"""The jobs that are alive."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

import trio

from arcp_trio.groups import consists_of
from arcp_trio.runtime.job.agent_threads import AgentThreads
from arcp_trio.runtime.job.awaiting import call_agent
from arcp_trio.runtime.job.context import JobContext
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.job_view import facts_for_agent
from arcp_trio.runtime.job.link import DirectLink
from arcp_trio.runtime.job.state import JobState
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.tasks import first_of, start_clean
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.errors import Fenced
from arcp_trio.wire.errors import PermissionDenied
from arcp_trio.wire.json import JsonLike

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.credentials.holes import OtherWallets
    from arcp_trio.runtime.credentials.revocation import Revoker
    from arcp_trio.runtime.job.agents import Agents
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.outcome import Outcome
    from arcp_trio.runtime.job.written import OtherJournals, Written

log = logging.getLogger(__name__)

LARGE: Final = 64 * 1024
"""Bytes; reading or writing a larger value takes milliseconds, and so its principal's turn."""


class AgentProcesses(Protocol):
    """Runs agents in processes of their own."""

    async def run_agent(self, desk: Desk) -> JsonLike:
        """Call a job's agent, and return what it returns."""
        ...

    def lend_place_of(self, job: Job) -> None:
        """Let another job run while this one waits for people, if it is in a process."""
        ...


class Jobs:
    """Jobs by id, from their drafts to their stored ends; after that a job is in the store only."""

    def __init__(
        self,
        core: Core,
        agents: Agents,
        revoker: Revoker,
        workers: AgentProcesses,
        nursery: trio.Nursery,
    ) -> None:
        self.core = core
        self.agents = agents
        self.revoker = revoker
        self.threads = AgentThreads(core)
        self.live: dict[str, Job] = {}
        self._workers = workers
        self._nursery = nursery
        self._count: Counter[str] = Counter()
        """How many jobs each principal has."""
        self._waiting: set[str] = set()
        """Ids of the jobs that wait for people."""
        self._count_waiting: Counter[str] = Counter()
        """How many of these each principal has."""
        self.elsewhere: Mapping[str, int] = {}
        """How many run at other nodes, or wait for one, as of a moment ago."""
        self.taken = Wake()
        """Says that some of those may be this node's now."""
        self.to_forget: dict[str, float] = {}
        """When each of the jobs ended that are to be forgotten, and that no listing has."""
        self.other_journals: OtherJournals | None = None
        """The journals of other nodes' jobs; None if there are no other nodes."""
        self.other_wallets: OtherWallets | None = None
        """The credentials of other nodes' jobs; None if they cannot be revealed here."""
        self._ordinal = 0
        self._one_ended = Wake()
        self._closed = False

    def go_on_from(self, ordinal: int) -> None:
        """Continue after `ordinal`, which another runtime may have given."""
        self._ordinal = max(self._ordinal, ordinal)

    def next_ordinal(self) -> int:
        """Return the next entry's place among all entries of the runtime.

        Ordinals of several nodes are microseconds, as far as possible: their entries stand in the
        order of time, about.
        """
        self._ordinal += 1
        if self.core.store.shared is not None:
            self._ordinal = max(self._ordinal, int(self.core.clock.now() * 1_000_000))
        return self._ordinal

    def journal(self, job_id: str, length: int = 0) -> Written | None:
        """Return a job's journal, which has `length` entries at least, if more may be added to it.

        What other nodes have stored is not looked up: their jobs are taken to go on.
        """
        job = self.live.get(job_id)
        if job is not None:
            return job.journal
        return None if self.other_journals is None else self.other_journals.find(job_id, length)

    # -- coming and going

    def refuse_if_full(self, principal: str, input_bytes: int) -> None:
        """Refuse another job if the limits of jobs or of their inputs are reached.

        Raises:
            InternalError: a limit is reached.
        """
        limits = self.core.limits
        helps = "try again when a job has ended"
        if len(self.live) - min(len(self._waiting), limits.waiting_jobs) >= limits.jobs:
            raise limit_hit("jobs", limits.jobs, what_helps=helps)
        waiting = min(self._count_waiting[principal], limits.waiting_jobs_per_principal)
        running = self._count[principal] - waiting + self.elsewhere.get(principal, 0)
        if running >= limits.jobs_per_principal:
            most = limits.jobs_per_principal
            raise limit_hit("jobs_per_principal", most, what_helps=helps)
        self.core.ledger.inputs.refuse_if_full(principal, input_bytes)
        self.core.ledger.stored.refuse_if_full(principal, 0)

    def admit(self, job: Job) -> None:
        """Count a job that was drafted."""
        self._count[job.principal] += 1
        self.core.ledger.inputs.share(job.principal).take(len(job.input))
        self.live[job.id] = job

    def count_waiting(self, job: Job) -> None:
        """Count a job among those that wait for people, or no longer."""
        waits = job.questions.are_open and job.id in self.live
        if waits == (job.id in self._waiting):
            return
        if waits:
            self._waiting.add(job.id)
            self._count_waiting[job.principal] += 1
            self._workers.lend_place_of(job)
        else:
            self._waiting.remove(job.id)
            self._count_waiting[job.principal] -= 1
            if not self._count_waiting[job.principal]:
                del self._count_waiting[job.principal]

    def remove(self, job: Job) -> None:
        """Stop counting a job, whose terminal is stored or which was given up."""
        del self.live[job.id]
        self.count_waiting(job)
        self.core.ledger.inputs.share(job.principal).give(len(job.input))
        job.drop_input()
        self.core.usages.of(job.principal).journal_bytes += job.journal.written
        self._count[job.principal] -= 1
        if not self._count[job.principal]:
            del self._count[job.principal]
        # What was spent stays on record.
        kept = job.authority.budget.spent_anything
        if job.spec.forget and job.finished_at is not None and not kept:
            self.to_forget[job.id] = job.finished_at
        self._one_ended.set()

    def one_is_left_alone(self) -> None:
        """Notice that the agent of a suspended job has stopped."""
        self._one_ended.set()

    def take_forgotten(self, finished_before: float) -> list[str]:
        """Return the ids of jobs that are to be forgotten and ended before then, each once."""
        taken = [job_id for job_id, at in self.to_forget.items() if at <= finished_before]
        for job_id in taken:
            del self.to_forget[job_id]
        return taken

    def remove_submitter(self, session_id: str) -> None:
        """Remove a session, which was closed or dropped, from those that may cancel its jobs."""
        for job in self.live.values():
            job.submitters.discard(session_id)

    # -- their tasks

    def start(self, job: Job, run: Callable[[], Awaitable[None]]) -> None:
        """Run a job in a context of its own, with nothing of the connection that it came by."""
        if not self._closed:
            start_clean(self._nursery, self._fence, job, run, name=f"job {job.id}")

    async def _fence(self, job: Job, work: Callable[[], Awaitable[None]]) -> None:
        """Do a job's work: a defect in it ends the job, and nothing else."""
        try:
            await work()
        except Exception as error:
            if consists_of(error, Fenced):
                raise
            log.exception("job failed", extra=job.facts)
            try:
                await job.fail()
            except Exception:
                log.exception("job without an end", extra=job.facts)
            if self.live.get(job.id) is job:
                job.give_up()

    async def call_agent(self, job: Job) -> JsonLike:
        """Call a job's agent where it runs, and return its result.

        Raises:
            PermissionDenied: the job requires a sandbox, and the agent has none.
        """
        if job.authority.lease.sandbox and not job.agent.contained:
            raise PermissionDenied(
                f"the job requires a sandbox, and agent {job.agent.name} has none here"
            )
        desk = Desk(job)
        if job.agent.process:
            return await self._workers.run_agent(desk)
        if job.agent.loop != "trio":
            return await self.threads.run(desk)
        context = JobContext(DirectLink(desk), facts_for_agent(job), job.agent_run.deadline)
        if len(job.input) > LARGE:
            async with self.core.long_steps.turn(job.principal):
                _ = context.input  # which decodes it
        result: JsonLike = await call_agent(job.agent.function, context)
        return result

    async def turn_for_result(self, job: Job) -> None:
        """Take a turn for having written a large result: how long it takes is known after it."""
        if job.outcome is not None and len(job.outcome.result) > LARGE:
            held = job.agent_run.encoding_seconds
            async with self.core.long_steps.turn(job.principal, held=held):
                pass

    def start_beside(self, job: Job, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Start a task beside a job's agent, which ends with the job at the latest."""
        if not self._closed:
            start_clean(self._nursery, first_of, work, job.over.wait, name=name)

    def start_stopping(self, job: Job) -> None:
        """Start the task that finishes a job whose agent does not stop within its grace."""
        if not self._closed:
            self._nursery.start_soon(self._fence, job, job.stop_agent, name=f"end of {job.id}")

    def close(self) -> None:
        """Start no more tasks, and wait for no agent: the nursery is about to end."""
        self._closed = True
        for job in self.live.values():
            job.over.set()

    # -- shutdown

    def unfinished(self) -> dict[str, int]:
        """Return how many jobs are `ending` with the runtime, and `going_on` after it.

        Of those that end, some are `waiting_for_people`.
        """
        jobs = [job for job in self.live.values() if job.outcome is None]
        ending = [job for job in jobs if not (job.memory.durable and job.accepted)]
        return {
            "ending": len(ending),
            "waiting_for_people": sum(bool(job.questions.listed()) for job in ending),
            "going_on": len(jobs) - len(ending),
        }

    def suspend_all(self) -> None:
        """Suspend the durable jobs, all at once: the next runtime goes on with them."""
        for job in list(self.live.values()):
            if job.memory.durable and job.accepted and job.outcome is None and not job.suspended:
                job.suspend()

    def leave_all(self, grace: float) -> None:
        """Leave every job: nothing is stored any longer, and so no job has an end here.

        An agent has at most `grace` seconds to stop in.
        """
        for job in list(self.live.values()):
            job.agent_run.shorten_grace(grace)
            if job.accepted and not (job.suspended or job.ended):
                job.suspend(JobState.LOST)

    def end_all(self, outcome: Outcome, grace: float) -> None:
        """End every job; an agent has at most `grace` seconds to stop in."""
        for job in reversed(self.live.values()):  # children before their parents
            job.agent_run.shorten_grace(grace)
            if not job.suspended:
                job.end(outcome)

    async def none_left(self, *, but_suspended: bool = False) -> None:
        """Wait until the agent of no job is at work; `but_suspended`: of none but suspended ones.

        A suspended job stays alive to its clients until the runtime's end.
        """
        while not all(
            job.suspended and (but_suspended or job.over.is_set()) for job in self.live.values()
        ):
            await self._one_ended.wait()

    async def agents_left(self) -> None:
        """Wait until no agent is at work, whether or not the jobs' ends are stored."""
        for job in list(self.live.values()):
            if job.agent_run.begun:
                await job.over.wait()

    def abandon_all(self) -> None:
        """Have jobs wait no longer for their children; the next start ends what is not stored."""
        for job in self.live.values():
            job.children.abandon()
