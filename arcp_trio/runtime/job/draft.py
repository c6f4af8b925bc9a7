"""Drafting a job: what was asked for becomes a job that counts, but is not accepted yet (§7.1)."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import trio

from arcp_trio.authority.authority import Authority
from arcp_trio.authority.budget import Budget
from arcp_trio.runtime.job.agent_run import AgentRun
from arcp_trio.runtime.job.durable.memory import Memory
from arcp_trio.runtime.job.job import Job
from arcp_trio.runtime.job.journal import Journal
from arcp_trio.runtime.notices import store_trouble
from arcp_trio.wire.errors import InternalError
from arcp_trio.wire.ids import new_id

if TYPE_CHECKING:
    from arcp_trio.authority.lease import Lease
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.job.spec import JobSpec
    from arcp_trio.runtime.tracing import Span


def draft(jobs: Jobs, spec: JobSpec) -> Job:
    """Return a job that counts among those alive; the caller has it accepted or gives it up.

    Raises:
        ArcpError: no job can be taken on now.
    """
    core, parent = jobs.core, spec.parent
    if core.closing:
        raise InternalError("the runtime is shutting down")
    if core.store.trouble is not None:
        raise store_trouble(core.store)
    jobs.refuse_if_full(spec.principal, len(spec.input))
    job_id = new_id("job_")
    # Whether its agent is to be called again after a restart.
    durable = spec.agent.durable and core.store.outlasts_process
    durable = durable and (parent is None or parent.memory.durable)
    return make(jobs, spec, job_id, Memory(core, job_id, durable=durable))


def make(jobs: Jobs, spec: JobSpec, job_id: str, memory: Memory) -> Job:
    """Return a job that counts among those alive: a new one, or one that was there before."""
    core, parent = jobs.core, spec.parent
    span = _span(core, job_id, spec)
    trace_id = _trace_id(spec.trace) or span.trace_id or secrets.token_hex(16)
    above = None if parent is None else parent.journal
    job = Job(
        core=core,
        jobs=jobs,
        id=job_id,
        spec=spec,
        submitters={spec.session_id} if parent is None else parent.submitters,
        trace_id=trace_id,
        span=span,
        journal=Journal(jobs, job_id, trace_id, spec.session_id, above),
        authority=_authority(core, spec.lease, parent),
        agent_run=AgentRun(grace=core.limits.cancel_grace_seconds, max_runtime=spec.max_runtime),
        memory=memory,
    )
    jobs.admit(job)
    if parent is not None:
        parent.children.add(job)
    return job


def _span(core: Core, job_id: str, spec: JobSpec) -> Span:
    """Begin the span of a job."""
    attributes = {
        "arcp.job.id": job_id,
        "arcp.agent.name": spec.agent.name,
        "arcp.agent.version": spec.agent.version,
    }
    if spec.lease.expires_at is not None:
        attributes["arcp.lease.expires_at"] = spec.lease.expires_at
    above = None if spec.parent is None else spec.parent.span
    return core.tracer.start(f"job {spec.agent.name}", attributes, trace=spec.trace, parent=above)


def _trace_id(trace: str | None) -> str | None:
    """Return a trace id as it is, or the one in a `traceparent`."""
    return trace if trace is None or "-" not in trace else trace.split("-")[1]


def _authority(core: Core, lease: Lease, parent: Job | None) -> Authority:
    """Return what a job may do by its lease, below its parent's."""
    above = None if parent is None else parent.authority
    return Authority(
        lease=lease,
        budget=Budget(lease.budget, None if above is None else above.budget),
        deadline=_deadline(core, lease, above),
        any_model=core.policy.any_model,
        reserved=core.reserved.paths,
    )


def _deadline(core: Core, lease: Lease, above: Authority | None) -> float | None:
    """Return when the lease expires, on Trio's clock: no step of the wall clock moves it (§14)."""
    if lease.expires is None:
        return None
    if above is not None and lease.expires == above.lease.expires:
        return above.deadline  # the wall clock may have been set since that was calculated
    left = lease.expires - core.clock.now() + core.limits.lease_grace_seconds
    deadline = trio.current_time() + left
    return deadline if above is None or above.deadline is None else min(deadline, above.deadline)
