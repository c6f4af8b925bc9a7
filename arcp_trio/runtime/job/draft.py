"""Drafting a job: what was asked for becomes a job that counts, but is not accepted yet (§7.1)."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio

from arcp_trio.authority.authority import Authority
from arcp_trio.authority.budget import Budget
from arcp_trio.runtime.job.agent_run import AgentRun
from arcp_trio.runtime.job.durable.memory import Memory
from arcp_trio.runtime.job.job import Job
from arcp_trio.runtime.job.journal import Journal
from arcp_trio.runtime.job.provisioning import wallet_for
from arcp_trio.runtime.notices import store_trouble
from arcp_trio.wire.errors import InternalError
from arcp_trio.wire.ids import new_id

if TYPE_CHECKING:
    from arcp_trio.authority.lease import Lease
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.agent import Agent
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.tracing import Span


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The work and the lease that a job is wanted for: checked, and found valid."""

    agent: Agent
    input: bytes
    """As JSON: decoded, it may take ten times the room."""
    lease: Lease
    max_runtime: float | None


@attrs.frozen
class IdempotencyKey:
    """The key that a submit came with, and what was submitted under it (§7.2)."""

    key: str
    fingerprint: bytes


class JobSource(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a job: a submit, or a delegation."""

    principal: str
    session_id: str
    """The session that submitted the job, or the job at the top of its tree."""
    submitters: set[str]
    trace: str | None
    """A trace id, or a whole `traceparent` (§11)."""
    sends_chunks: bool
    """The session negotiated `result_chunk`."""
    knows_questions: bool
    """The session negotiated questions."""
    wants_credentials: bool
    """The job is to have credentials, if its lease needs any (§9.8)."""
    request_id: str | None = None
    """The submit that the job's acceptance answers."""
    key: IdempotencyKey | None = None
    parent: Job | None = None
    delegate_id: str | None = None
    forget: bool = False
    """The job leaves listings soon after its end, if it has spent nothing."""

    @classmethod
    def delegation(cls, parent: Job, delegate_id: str) -> JobSource:
        """Return the source of a child, which has its parent's principal and session (§10)."""
        return cls(
            principal=parent.principal,
            session_id=parent.session_id,
            submitters=parent.submitters,
            trace=parent.trace_id,
            sends_chunks=parent.sends_chunks,
            knows_questions=parent.knows_questions,
            wants_credentials=parent.wallet is not None,
            parent=parent,
            delegate_id=delegate_id,
        )


def draft(jobs: Jobs, wanted: Wanted, source: JobSource) -> Job:
    """Return a job that counts among those alive; the caller has it accepted or gives it up.

    Raises:
        ArcpError: no job can be taken on now.
    """
    core, parent = jobs.core, source.parent
    if core.closing:
        raise InternalError("the runtime is shutting down")
    if core.store.trouble is not None:
        raise store_trouble(core.store)
    jobs.refuse_if_full(source.principal, len(wanted.input))
    job_id = new_id("job_")
    span = job_span(core, job_id, wanted.agent, wanted.lease, source.trace, parent)
    trace_id = _trace_id(source.trace) or span.trace_id or secrets.token_hex(16)
    above = None if parent is None else parent.journal
    job = Job(
        core=core,
        jobs=jobs,
        id=job_id,
        agent=wanted.agent,
        input=wanted.input,
        principal=source.principal,
        session_id=source.session_id,
        trace_id=trace_id,
        span=span,
        submitters=source.submitters,
        journal=Journal(jobs, job_id, trace_id, source.session_id, above),
        authority=authority_of(core, wanted.lease, parent),
        agent_run=AgentRun(grace=core.limits.cancel_grace_seconds, max_runtime=wanted.max_runtime),
        memory=Memory(core, job_id, durable=_is_durable(core, wanted, parent)),
        sends_chunks=source.sends_chunks,
        knows_questions=source.knows_questions,
        parent=parent,
        delegate_id=source.delegate_id,
        forget=source.forget,
    )
    jobs.admit(job)
    if parent is not None:
        parent.children.add(job)
    if source.wants_credentials:
        job.wallet = wallet_for(job)
    return job


def _is_durable(core: Core, wanted: Wanted, parent: Job | None) -> bool:
    """Return whether the job's agent is to be called again after a restart."""
    kept = parent is None or parent.memory.durable
    return wanted.agent.durable and core.store.outlasts_process and kept


def job_span(
    core: Core, job_id: str, agent: Agent, lease: Lease, trace: str | None, parent: Job | None
) -> Span:
    """Begin the span of a job."""
    attributes = {
        "arcp.job.id": job_id,
        "arcp.agent.name": agent.name,
        "arcp.agent.version": agent.version,
    }
    if lease.expires_at is not None:
        attributes["arcp.lease.expires_at"] = lease.expires_at
    above = None if parent is None else parent.span
    return core.tracer.start(f"job {agent.name}", attributes, trace=trace, parent=above)


def _trace_id(trace: str | None) -> str | None:
    """Return a trace id as it is, or the one in a `traceparent`."""
    return trace if trace is None or "-" not in trace else trace.split("-")[1]


def authority_of(core: Core, lease: Lease, parent: Job | None) -> Authority:
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
