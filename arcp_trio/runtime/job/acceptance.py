"""Accepting a job, submitted or delegated: the one order of steps (§7.1, §10).

A job is drafted: from then on it counts. Its credentials are issued. Its acceptance is encoded and
put into the store's queue. If anything fails so far, the job is given up. Its task starts, and
calls the agent once the acceptance is stored.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from arcp_trio.runtime.credentials.holes import with_holes
from arcp_trio.runtime.job.draft import draft
from arcp_trio.runtime.job.provisioning import provide
from arcp_trio.runtime.job.state import JobState
from arcp_trio.runtime.notices import frame
from arcp_trio.store.memos import Durability
from arcp_trio.store.records import JobRow, KeyRow
from arcp_trio.store.shared_writes import ClaimKey, DropClaim
from arcp_trio.store.writes import AcceptJob
from arcp_trio.wire.errors import InternalError
from arcp_trio.wire.json import JsonLike, dumps
from arcp_trio.wire.timestamps import parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.job.spec import IdempotencyKey, JobSpec
    from arcp_trio.store.queue import Group

log = logging.getLogger(__name__)


class AcceptanceRefused(InternalError):  # noqa: N818 - an answer, not a fault
    """The store did not take on a job: another runtime has its key, or its session, by now."""

    def __init__(self) -> None:
        super().__init__("the job was not accepted here: try again, in the session as it is now")


class NewJob(msgspec.Struct, frozen=True):
    """A job whose acceptance is stored, or in the store's queue."""

    job: Job
    tail: bytes
    """The tail of its `job.accepted`."""
    group: Group
    """The writes with which the acceptance is stored."""
    key: KeyRow | None = None
    """What its idempotency key stands for from now on, if it has one."""

    async def stored(self) -> None:
        """Wait until the acceptance is stored; give the job up if the store refuses it.

        Raises:
            AcceptanceRefused: the store did not take it.
        """
        await self.group.committed()
        if self.job.id in self.group.refused:
            self.job.core.metrics.refused_writes += 1
            _drop_claim(self.job, self.key)
            if self.job.outcome is None:  # else its end is on its way, which will be refused, too
                self.job.give_up()
            raise AcceptanceRefused

    async def run(self) -> None:
        """Run the job once its acceptance is stored: its agent must not act before."""
        try:
            await self.stored()
        except AcceptanceRefused:
            return
        log.debug("job accepted", extra=self.job.facts)
        await self.job.run()


async def accept(jobs: Jobs, spec: JobSpec) -> NewJob:
    """Accept a job, once its credentials are issued; if it needs none, there is no checkpoint.

    Raises:
        AcceptanceRefused: another node has the key.
        ArcpError: no job can be taken on now, or there are no credentials for it.
    """
    job = draft(jobs, spec)
    try:
        await _claim_key(job, spec.key)
        await provide(job)
        return _store(job)
    except BaseException:
        _drop_claim(job, spec.key)
        if job.wallet is not None and job.parent is not None:
            # What was issued for a child must not outlast its parent (§9.8.2).
            job.wallet.close()
            await job.wallet.revoked()  # noqa: ASYNC102 - it bounds and shields itself
        job.give_up()
        raise


async def _claim_key(job: Job, key: IdempotencyKey | None) -> None:
    """Keep other nodes from minting credentials for the same key."""
    core = job.core
    if key is None or not _mints_beside_others(job):
        return
    expires_at = core.clock.now() + core.limits.idempotency_seconds
    claim = ClaimKey(job.principal, key.key, key.fingerprint, job.id, expires_at)
    claimed = core.store.put(claim)
    await claimed.committed()
    if job.id in claimed.refused:
        raise AcceptanceRefused


def _drop_claim(job: Job, key: IdempotencyKey | KeyRow | None) -> None:
    if key is not None and _mints_beside_others(job):
        job.core.store.put(DropClaim(job.principal, key.key, job.id))


def _mints_beside_others(job: Job) -> bool:
    return job.core.store.shared is not None and job.wallet is not None


def _store(job: Job) -> NewJob:
    """Put the acceptance into the store's queue.

    All that is said of it is encoded before: from then on nothing can fail.
    """
    core, spec, parent, now = job.core, job.spec, job.parent, job.core.clock.now()
    payload = _payload(job, now)
    accepted = dumps(payload)
    tail = accepted_tail(payload, spec.request_id)
    row = JobRow(
        job_id=job.id,
        agent=job.agent.ref,
        principal=job.principal,
        session_id=spec.session_id,
        trace_id=job.trace_id,
        accepted=accepted,
        request_id=spec.request_id,
        created_at=parse_rfc3339(rfc3339(now)),  # as it is shown, for filters to compare with
    )
    key = None
    if spec.key is not None:
        key = KeyRow(
            principal=job.principal,
            key=spec.key.key,
            fingerprint=spec.key.fingerprint,
            job_id=job.id,
            accepted=accepted,
            expires_at=now + core.limits.idempotency_seconds,
        )
    group = core.store.put(
        AcceptJob(
            row,
            key,
            parent=None if parent is None else parent.id,
            durability=_durability(job),
            kept=parent is not None and parent.memory.durable,
        )
    )
    job.move_to(JobState.ACCEPTED)
    return NewJob(job, tail, group, key)


def _durability(job: Job) -> Durability | None:
    """Return what it takes to call the agent again, if the job is durable."""
    if not job.memory.durable:
        return None
    return Durability(
        input=job.input,
        max_runtime=job.agent_run.max_runtime,
        sends_chunks=job.spec.sends_chunks,
        knows_questions=job.spec.knows_questions,
        wants_credentials=job.wallet is not None,
        forget=job.spec.forget,
        run=job.memory.run,
        fruitless_runs=job.memory.fruitless_runs,
    )


def _payload(job: Job, now: float) -> dict[str, JsonLike]:
    """Return the payload of `job.accepted`, without the id of the request that it answers.

    The values of credentials are not in it: they are not stored.
    """
    credentials = [] if job.wallet is None else job.wallet.all()
    lease = job.authority.lease
    payload: dict[str, JsonLike] = {
        "job_id": job.id,
        "agent": job.agent.ref,
        "lease": lease.wire(),
        "lease_constraints": lease.constraints(),
        "budget": lease.budget and dict(lease.budget),
        "credentials": [each.public() for each in credentials] or None,
        "accepted_at": rfc3339(now),
        "trace_id": job.trace_id,
        "parent_job_id": None if job.parent is None else job.parent.id,
        "delegate_id": job.spec.delegate_id,
    }
    return {name: value for name, value in payload.items() if value is not None}


def accepted_tail(payload: Mapping[str, JsonLike], request_id: str | None) -> bytes:
    """Return the tail of a `job.accepted`; it has holes if the job has credentials."""
    said = payload if request_id is None else {**payload, "request_id": request_id}
    # Some clients match it to their submit by the envelope's trace id.
    job_id, trace_id = str(payload["job_id"]), str(payload["trace_id"])
    tail = frame("job.accepted", said, job_id=job_id, trace_id=trace_id)
    return with_holes(tail) if "credentials" in payload else tail
