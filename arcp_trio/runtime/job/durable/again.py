"""Durable jobs after a restart: each is made again from its rows, and its agent called again."""

from __future__ import annotations

import logging
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.authority.lease import Lease
from arcp_trio.groups import unwrapped
from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.job.agent_run import AgentRun
from arcp_trio.runtime.job.asking import reopen_questions
from arcp_trio.runtime.job.draft import authority_of, job_span
from arcp_trio.runtime.job.durable.memory import Memory
from arcp_trio.runtime.job.events import add_event
from arcp_trio.runtime.job.job import Job
from arcp_trio.runtime.job.journal import Journal
from arcp_trio.runtime.job.provisioning import announce_all, wallet_for
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.tasks import first_of
from arcp_trio.store.errors import StoreError
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.json import loads_object

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.agents import Agent
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.store.memos import Durability, JournalExtent
    from arcp_trio.store.records import JobRow
    from arcp_trio.wire.json import JsonLike, JsonObject

log = logging.getLogger(__name__)

ALONE: Final = 2
"""A job whose last runs, as many as this, have failed to get on is begun alone."""

ALONE_SECONDS: Final = 300.0
"""How long the others wait for it, at most: it may be slow, and not deadly."""

FIRST_PAUSE_SECONDS: Final = 1.0
LAST_PAUSE_SECONDS: Final = 60.0
"""Between tries to read the store, or to have credentials issued; each is twice the one before."""


def revive(
    jobs: Jobs,
    agent: Agent,
    row: JobRow,
    durability: Durability,
    extent: JournalExtent,
    sessions: Collection[str],
) -> Job:
    """Make a job again that an earlier runtime has left; its agent is not called yet.

    Args:
        sessions: those that exist.
    """
    core, accepted = jobs.core, loads_object(row.accepted)
    parent = jobs.live.get(str(accepted.get("parent_job_id")))
    lease = _lease(accepted)
    journal = Journal(
        jobs, row.job_id, row.trace_id, row.session_id, None if parent is None else parent.journal
    )
    journal.go_on_from(row.length, extent)
    job = Job(
        core=core,
        jobs=jobs,
        id=row.job_id,
        agent=agent,
        input=durability.input,
        principal=row.principal,
        session_id=row.session_id,
        trace_id=row.trace_id,
        span=job_span(core, row.job_id, agent, lease, row.trace_id, parent),
        submitters={row.session_id, *row.submitters}.intersection(sessions)
        if parent is None
        else parent.submitters,
        journal=journal,
        authority=authority_of(core, lease, parent),
        agent_run=AgentRun(
            grace=core.limits.cancel_grace_seconds,
            max_runtime=durability.max_runtime,
            deadline=_deadline(core, row, durability),
        ),
        memory=Memory(
            core,
            row.job_id,
            durable=True,
            run=durability.run,
            fruitless_runs=durability.fruitless_runs,
            loaded=trio.Event(),
            waits=True,
        ),
        sends_chunks=durability.sends_chunks,
        parent=parent,
        delegate_id=_text(accepted.get("delegate_id")),
        forget=durability.forget,
        status=row.status,
        started_at=row.started_at,
        accepted=True,
        revived=True,
    )
    if durability.spent is not None:
        spent = loads_object(durability.spent)
        job.authority.budget.restore({each: Decimal(str(spent[each])) for each in spent})
    jobs.admit(job)
    if parent is not None:
        parent.children.add(job)
    if durability.wants_credentials:
        job.wallet = wallet_for(job)
    if row.cancelled is not None:
        job.decide(outcome.cancelled(row.cancelled, stopped_by=row.stopped_by))
    return job


def _deadline(core: Core, row: JobRow, durability: Durability) -> float | None:
    """Return the end of the job's time limit, which counts from its first run on."""
    if durability.max_runtime is None or row.started_at is None:
        return None
    used = core.clock.now() - row.started_at
    return trio.current_time() + durability.max_runtime - used


def _lease(accepted: JsonObject) -> Lease:
    lease, constraints = accepted["lease"], accepted.get("lease_constraints")
    assert isinstance(lease, dict)
    expires_at = constraints.get("expires_at") if isinstance(constraints, dict) else None
    return Lease.read(lease, _text(expires_at))  # type: ignore[arg-type]  # it was written by this program


def _text(value: object) -> str | None:
    return None if value is None else str(value)


class Beginnings:
    """Durable jobs that wait for their turn to be begun again, and the pace at which they are."""

    def __init__(self, core: Core, jobs: Jobs) -> None:
        self._core = core
        self._jobs = jobs

    async def run(self, waiting: Sequence[Job]) -> None:
        """Begin each job: first those that may end the process, one by one, then all others."""
        async with trio.open_nursery() as nursery:
            # At once, not at the pace: what they ask can be answered before they are begun.
            nursery.start_soon(_remember_all, waiting, name="memories of durable jobs")
            async with trio.open_nursery() as meanwhile:
                meanwhile.start_soon(_end_late, waiting, name="time limits of waiting jobs")
                await self._begin_all(waiting)
                meanwhile.cancel_scope.cancel(reason="all jobs are begun")

    async def _begin_all(self, waiting: Sequence[Job]) -> None:
        suspects = [job for job in waiting if job.memory.fruitless_runs >= ALONE]
        others = [job for job in waiting if job.memory.fruitless_runs < ALONE]
        for job in sorted(suspects, key=lambda job: job.memory.fruitless_runs):
            self._begin(job)
            with trio.move_on_after(ALONE_SECONDS):
                await first_of(job.memory.progressed.wait, job.over)
        for job in others:
            self._begin(job)
            await trio.sleep(1 / self._core.limits.jobs_begun_per_second)

    def _begin(self, job: Job) -> None:
        if not self._core.closing:
            self._jobs.begin_again(job, _call_again)


async def _end_late(jobs: Sequence[Job]) -> None:
    """End each job whose time limit, or lease, ends while it waits for its turn."""
    for job in sorted(jobs, key=_latest):
        await trio.sleep_until(_latest(job))
        if job.memory.waits:
            job.decide_if_late()
            if job.outcome is not None:
                job.wind_up()


def _latest(job: Job) -> float:
    """Return when the job must end, on Trio's clock."""
    deadlines = (job.agent_run.deadline, job.authority.deadline)
    return min((each for each in deadlines if each is not None), default=math.inf)


async def _call_again(job: Job) -> None:
    """Call a job's agent again, or end the job if it must not go on."""
    try:
        job.decide_if_late()
        if job.outcome is None:
            await _prepare(job)
    except Exception as error:  # a fence: what fails here ends the job alone
        cause = unwrapped(error)
        if not isinstance(cause, ArcpError):
            log.exception("job cannot be begun again", extra=job.facts)
            cause = InternalError("the job could not be begun again")
        job.decide(outcome.failed(cause))
    await job.run()


async def _prepare(job: Job) -> None:
    """Wait until the job remembers, get its credentials, and store that it runs again.

    A job that is to end while it waits is not prepared any further.
    """
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_decided, job, scope, name=f"end of the wait of {job.id}")
            await job.memory.until_loaded()
            _refuse_if_fruitless(job)
            await _get_credentials(job)
            job.decide_if_late()
            if job.outcome is None and not job.suspended:
                await _store_run(job)
            nursery.cancel_scope.cancel(reason="the job is prepared")


async def _until_decided(job: Job, scope: trio.CancelScope) -> None:
    """Cancel the preparation once the job is to end: at a time limit, or because it is asked to."""
    with trio.move_on_at(_latest(job)):
        await job.decided.wait()
    scope.cancel(reason="the job is to end")


async def _remember_all(jobs: Sequence[Job]) -> None:
    """Give each job what its earlier runs have left, and the questions that they have asked."""
    for job in jobs:
        try:
            if job.outcome is None:
                await _load(job)
                reopen_questions(job)
        except Exception:  # a fence, as in `_call_again`
            log.exception("memos cannot be read", extra=job.facts)
            job.decide(outcome.failed(InternalError("the job could not be begun again")))
        assert job.memory.loaded is not None
        job.memory.loaded.set()


async def _load(job: Job) -> None:
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            await job.memory.load(job.core.store.for_principal(job.principal))
        except StoreError as error:
            log.warning("memos not read", extra=job.facts | {"error": str(error)})
            await trio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)
        else:
            return


def _refuse_if_fruitless(job: Job) -> None:
    """Refuse to call an agent that has ended the process several times.

    Raises:
        InternalError: it has ended the process too often.
    """
    most = job.core.limits.runs_without_progress
    if job.memory.fruitless_runs >= most:
        last = job.memory.last_finished
        after = "it has finished no step" if last is None else f"its last finished step is {last}"
        raise limit_hit("runs_without_progress", most, what_helps=after)


async def _get_credentials(job: Job) -> None:
    """Mint new credentials; ask again an upstream that does not answer."""
    if job.wallet is None:
        return
    pause = FIRST_PAUSE_SECONDS
    while job.outcome is None:
        try:
            await job.wallet.issue()
        except ArcpError as error:
            if not error.retryable:
                raise
            log.warning("credentials not issued, yet", extra=job.facts | {"error": error.message})
            await trio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)
        else:
            return


async def _store_run(job: Job) -> None:
    """Have it stored that the agent is called again, and tell it after all other events."""
    called = job.started_at is not None
    group = job.memory.next_run(called=called)
    if called:
        body: dict[str, JsonLike] = {
            "phase": "resumed",
            "message": "the runtime was restarted",
            "run": job.memory.run,
        }
        add_event(job, "status", body)
    announce_all(job)
    await group.committed()
    log.info("job begun again", extra=job.facts | {"run": job.memory.run})
