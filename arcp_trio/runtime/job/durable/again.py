"""Durable jobs after a restart: each is made again from its rows."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import TYPE_CHECKING

from arcp_trio.authority.lease import Lease
from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.job.draft import make
from arcp_trio.runtime.job.durable.memory import Memory, Recall
from arcp_trio.runtime.job.spec import JobSpec
from arcp_trio.wire.json import loads_object
from arcp_trio.wire.rules import SANDBOX

if TYPE_CHECKING:
    from collections.abc import Collection

    from arcp_trio.runtime.job.agent import Agent
    from arcp_trio.runtime.job.job import Job
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
    spec = JobSpec(
        agent=agent,
        input=durability.input,
        lease=_lease(accepted),
        max_runtime=durability.max_runtime,
        principal=row.principal,
        session_id=row.session_id,
        trace=row.trace_id,
        sends_chunks=durability.sends_chunks,
        knows_questions=durability.knows_questions,
        wants_credentials=durability.wants_credentials,
        parent=jobs.live.get(str(accepted.get("parent_job_id"))),
        delegate_id=_text(accepted.get("delegate_id")),
        forget=durability.forget,
    )
    memory = Memory(
        core,
        row.job_id,
        durable=True,
        run=durability.run,
        fruitless_runs=durability.fruitless_runs,
        recall=Recall(),
        waits=True,
    )
    job = make(jobs, spec, row.job_id, memory)
    job.go_on_from(row, extent, sessions)
    if durability.spent is not None:
        spent = loads_object(durability.spent)
        job.authority.budget.restore({each: Decimal(str(spent[each])) for each in spent})
    if row.cancelled is not None:
        job.decide(outcome.cancelled(row.cancelled, stopped_by=row.stopped_by))
    return job


def _lease(accepted: JsonObject) -> Lease:
    lease, constraints = accepted["lease"], accepted.get("lease_constraints")
    assert isinstance(lease, dict)
    known = constraints if isinstance(constraints, dict) else {}
    expires_at, sandbox = _text(known.get("expires_at")), SANDBOX in known
    return Lease.read(lease, expires_at, sandbox=sandbox)  # type: ignore[arg-type]  # it was written by this program


def _text(value: object) -> str | None:
    return None if value is None else str(value)
