"""Durable jobs after a restart: each is made again from its rows."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import TYPE_CHECKING

import trio

from arcp_trio.authority.lease import Lease
from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.job.agent_run import AgentRun
from arcp_trio.runtime.job.draft import authority_of, job_span
from arcp_trio.runtime.job.durable.memory import Memory, Recall
from arcp_trio.runtime.job.job import Job
from arcp_trio.runtime.job.journal import Journal
from arcp_trio.runtime.job.provisioning import wallet_for
from arcp_trio.runtime.job.state import JobState
from arcp_trio.wire.json import loads_object
from arcp_trio.wire.rules import SANDBOX

if TYPE_CHECKING:
    from collections.abc import Collection

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.agent import Agent
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.store.memos import Durability, JournalExtent
    from arcp_trio.store.records import JobRow
    from arcp_trio.wire.json import JsonObject

log = logging.getLogger(__name__)


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
            recall=Recall(),
            waits=True,
        ),
        sends_chunks=durability.sends_chunks,
        knows_questions=durability.knows_questions,
        parent=parent,
        delegate_id=_text(accepted.get("delegate_id")),
        forget=durability.forget,
        started_at=row.started_at,
        state=JobState.ACCEPTED if row.started_at is None else JobState.RUNNING,
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
    known = constraints if isinstance(constraints, dict) else {}
    expires_at, sandbox = _text(known.get("expires_at")), SANDBOX in known
    return Lease.read(lease, expires_at, sandbox=sandbox)  # type: ignore[arg-type]  # it was written by this program


def _text(value: object) -> str | None:
    return None if value is None else str(value)
