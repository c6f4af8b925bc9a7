"""Taking on a job: what was asked for becomes a job, and what is stored and said of it (§7.1)."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.authority.authority import Authority
from arcp_trio.authority.budget import Budget
from arcp_trio.runtime.credentials.holes import sealed
from arcp_trio.runtime.credentials.wallet import Wallet
from arcp_trio.runtime.job.job import Job
from arcp_trio.runtime.job.journal import Journal
from arcp_trio.runtime.notices import frame, store_trouble
from arcp_trio.runtime.tracing import Span
from arcp_trio.store.records import JobRow
from arcp_trio.wire.errors import InternalError
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import Json
from arcp_trio.wire.timestamps import parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from arcp_trio.authority.lease import Lease
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.agents import Agent
    from arcp_trio.runtime.job.jobs import Jobs


@attrs.frozen(kw_only=True)
class Wanted:
    """What somebody asks a job to be, found good so far."""

    agent: Agent
    input: Json
    lease: Lease
    max_runtime: float | None


@attrs.frozen(kw_only=True)
class Origin:
    """Where a job comes from."""

    principal: str
    session_id: str
    submitters: set[str]
    trace: str | None
    """A trace id, or a whole `traceparent` (§11)."""
    streams: bool
    """The session negotiated `result_chunk`."""
    credentials: bool = False
    """The job is to have some, if its lease needs any (§9.8)."""
    parent: Job | None = None
    delegate_id: str | None = None

    @classmethod
    def delegation(cls, parent: Job, delegate_id: str) -> Origin:
        """All that a child has from its parent (§10)."""
        return cls(
            principal=parent.principal,
            session_id=parent.session_id,
            submitters=parent.submitters,
            trace=parent.trace_id,
            credentials=parent.wallet is not None,
            streams=parent.streams,
            parent=parent,
            delegate_id=delegate_id,
        )


def draft(jobs: Jobs, wanted: Wanted, origin: Origin) -> Job:
    """A job that counts, but is not yet stored: whoever does not come to that gives it up again.

    Raises:
        ArcpError: no job can be taken on now.
    """
    core = jobs.core
    if core.closing:
        raise InternalError("the runtime is shutting down")
    if core.store.trouble is not None:
        raise store_trouble()
    jobs.refuse_if_full(origin.principal)
    job_id = new_id("job_")
    span = _span(core, job_id, wanted, origin)
    trace_id = _trace_id(origin.trace) or span.trace_id or secrets.token_hex(16)
    above = None if origin.parent is None else origin.parent.journal
    job = Job(
        core=core,
        jobs=jobs,
        id=job_id,
        agent=wanted.agent,
        input=wanted.input,
        principal=origin.principal,
        session_id=origin.session_id,
        trace_id=trace_id,
        span=span,
        max_runtime=wanted.max_runtime,
        grace=core.limits.cancel_grace_seconds,
        submitters=origin.submitters,
        journal=Journal(jobs, job_id, trace_id, origin.session_id, above),
        authority=_authority(core, wanted.lease, origin.parent),
        streams=origin.streams,
        parent=origin.parent,
        delegate_id=origin.delegate_id,
    )
    jobs.admit(job)
    if origin.credentials and jobs.revoker.provisioner is not None:
        job.wallet = Wallet(job, jobs.revoker.provisioner)
    return job


def _span(core: Core, job_id: str, wanted: Wanted, origin: Origin) -> Span:
    attributes = {
        "arcp.job.id": job_id,
        "arcp.agent.name": wanted.agent.name,
        "arcp.agent.version": wanted.agent.version,
    }
    if wanted.lease.expires_at is not None:
        attributes["arcp.lease.expires_at"] = wanted.lease.expires_at
    above = None if origin.parent is None else origin.parent.span
    return core.tracer.start(
        f"job {wanted.agent.name}", attributes, trace=origin.trace, parent=above
    )


def _trace_id(trace: str | None) -> str | None:
    """The one that it is, or that is in it."""
    return trace if trace is None or "-" not in trace else trace.split("-")[1]


async def provide(job: Job) -> None:
    """Have the credentials issued that a drafted job is to have, before it is accepted (§9.8.2).

    One that is to have none goes on at once, with no checkpoint.

    Raises:
        ArcpError: there are none, or the job must not begin any more.
    """
    if job.wallet is None:
        return
    await job.wallet.issue()
    if job.core.closing:
        raise InternalError("the runtime is shutting down")
    job.refuse_if_ending()
    job.wallet.issued = True


def _authority(core: Core, lease: Lease, parent: Job | None) -> Authority:
    above = None if parent is None else parent.authority
    return Authority(
        lease=lease,
        budget=Budget(lease.budget, None if above is None else above.budget),
        deadline=_deadline(core, lease, above),
        any_model=core.policy.any_model,
    )


def _deadline(core: Core, lease: Lease, above: Authority | None) -> float | None:
    """From here on only the monotonic clock counts: no step of the wall clock moves the end."""
    if lease.expires is None:
        return None
    if above is not None and lease.expires == above.lease.expires:
        return above.deadline  # as it was reckoned then: the wall clock may have been set since
    left = lease.expires - core.clock.now() + core.limits.lease_grace_seconds
    deadline = trio.current_time() + left
    return deadline if above is None or above.deadline is None else min(deadline, above.deadline)


def give_up(job: Job) -> None:
    """It will not be stored, and has no credentials any more."""
    if job.wallet is not None:
        job.wallet.end()
    job.authority.budget.close()
    job.jobs.ended(job)
    job.span.end({"arcp.job.outcome": "not accepted"}, code=InternalError.code)


def acceptance(job: Job, now: float) -> dict[str, Json]:
    """The payload of the job's `job.accepted`, but for the request that it answers (§7.1, §10).

    The values of credentials are not in it: they are not stored.
    """
    credentials = [] if job.wallet is None else job.wallet.all()
    lease = job.authority.lease
    payload: dict[str, Json] = {
        "job_id": job.id,
        "agent": job.agent.ref,
        "lease": lease.wire(),
        "lease_constraints": lease.constraints(),
        "budget": lease.budget and dict(lease.budget),
        "credentials": [each.public() for each in credentials] or None,
        "accepted_at": rfc3339(now),
        "trace_id": job.trace_id,
        "parent_job_id": None if job.parent is None else job.parent.id,
        "delegate_id": job.delegate_id,
    }
    return {name: value for name, value in payload.items() if value is not None}


def accepted_tail(payload: dict[str, Json]) -> bytes:
    """The tail of a `job.accepted`, sealed if the values of credentials belong into it."""
    # Some clients match it to their submit by the envelope's trace id.
    tail = frame("job.accepted", payload, job_id=payload["job_id"], trace_id=payload["trace_id"])
    return sealed(tail) if "credentials" in payload else tail


def row(job: Job, accepted: bytes, now: float) -> JobRow:
    """What is stored of an accepted job."""
    return JobRow(
        job_id=job.id,
        agent=job.agent.ref,
        principal=job.principal,
        session_id=job.session_id,
        trace_id=job.trace_id,
        accepted=accepted,
        created_at=parse_rfc3339(rfc3339(now)),  # as it is shown, for filters to compare with
    )
