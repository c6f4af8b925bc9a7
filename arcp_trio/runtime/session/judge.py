"""What a submit comes to: a new job, or the one that its key stands for (§7.1, §7.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.authority.lease import Lease
from arcp_trio.runtime.job.acceptance import (
    Origin,
    Wanted,
    acceptance,
    accepted_tail,
    draft,
    give_up,
    provide,
    row,
)
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.store.queue import Group
from arcp_trio.store.records import KeyRow
from arcp_trio.store.writes import AcceptJob
from arcp_trio.wire.errors import DuplicateKey, InvalidRequest
from arcp_trio.wire.features import Feature
from arcp_trio.wire.fingerprint import fingerprint
from arcp_trio.wire.json import JsonObject, dumps, loads_exact
from arcp_trio.wire.messages import Submit

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.attachment import Attachment
    from arcp_trio.runtime.session.session import Session


@attrs.define(eq=False)
class Claim:
    """An idempotency key whose first submit is still being decided."""

    settled: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False, kw_only=True)
class Request:
    """One submit, of one session."""

    session: Session
    attachment: Attachment
    id: str
    trace: str | None
    submit: Submit
    size: int
    """Of its frame."""
    claim: Claim | None
    """Held if this submit is the first to bring its key."""


@attrs.frozen
class Accepted:
    """What a submit came to: a job, new or known, and whether this session begins to watch it."""

    tail: bytes
    """Of its `job.accepted`, finished before anything is stored: from then on nothing can fail."""
    watch: Watch | None = None
    new: Job | None = None


class Judge:
    """Decides what a submit comes to. Of submits that share a key, one at a time."""

    def __init__(self, core: Core, jobs: Jobs) -> None:
        self._core = core
        self._jobs = jobs
        self._claims: dict[tuple[str, str], Claim] = {}

    def claim(self, principal: str, key: str | None) -> Claim | None:
        """Claim a key for the submit that is the first to bring it."""
        if key is None or (principal, key) in self._claims:
            return None
        claim = self._claims[principal, key] = Claim()
        return claim

    async def decide(self, request: Request) -> Accepted:
        """Have a new job stored, or find the one that the key stands for.

        Raises:
            ArcpError: why neither.
        """
        key = request.submit.idempotency_key
        if key is None:
            return await self._accept_stored(request)
        principal = request.session.principal
        while request.claim is None:
            other = self._claims.get((principal, key))
            if other is not None:
                await other.settled.wait()
            request.claim = self.claim(principal, key)
        try:
            known = await self._core.store.key(principal, key, self._core.clock.now())
            if known is None:
                accepted = await self._accept_stored(request)
            else:
                accepted = await self._repeat(request, known)
            if accepted.watch is not None:
                request.session.accepting.add(accepted.watch.job_id)
            return accepted
        finally:
            del self._claims[principal, key]
            request.claim.settled.set()

    # -- a new job

    async def _accept_stored(self, request: Request) -> Accepted:
        job = self.draft(request)
        try:
            await provide(job)
        except BaseException:
            give_up(job)
            raise
        accepted, group = self.accept(request, job)
        try:
            await group.committed()
        except BaseException:
            give_up(job)
            raise
        return accepted

    def draft(self, request: Request) -> Job:
        """A job as it is wanted, not yet stored.

        Raises:
            ArcpError: why not.
        """
        return draft(self._jobs, self._wanted(request), _origin(request))

    def accept(self, request: Request, job: Job) -> tuple[Accepted, Group]:
        """Take on a new job; it exists once the group is stored."""
        core, session = self._core, request.session
        try:
            now = core.clock.now()
            accepted = dumps(acceptance(job, now))
            tail = _accepted_tail(request, accepted)
            key = _key_row(request, job.id, accepted, now, core)
            group = core.store.put(AcceptJob(row(job, accepted, now), key))
        except BaseException:
            give_up(job)
            raise
        return Accepted(tail, Watch(session, job.id, job), job), group

    def _wanted(self, request: Request) -> Wanted:
        core, submit = self._core, request.submit
        _refuse_unnegotiated(submit, request.session.features)
        constraints = submit.lease_constraints
        expires_at = None if constraints is None else constraints.expires_at
        return Wanted(
            lease=Lease.read(submit.lease_request, expires_at, now=core.clock.now()),
            agent=self._jobs.agents.resolve(submit.agent),
            input=submit.input,
            max_runtime=submit.max_runtime_sec,
        )

    # -- a known job

    async def _repeat(self, request: Request, known: KeyRow) -> Accepted:
        """The same key again: the same acceptance, to another session also the events (§7.2)."""
        if fingerprint(request.submit) != known.fingerprint:
            raise DuplicateKey("this idempotency key came with other parameters before")
        session, store = request.session, self._core.store
        _refuse_unnegotiated(request.submit, session.features)
        tail = _accepted_tail(request, known.accepted)
        if known.job_id in session.accepting:
            return Accepted(tail)
        row = await store.job(known.job_id)
        job = self._jobs.live.get(known.job_id)
        if job is not None:
            job.submitters.add(session.id)  # also if it had been closed since
        if row is None or session.id in row.submitters:
            return Accepted(tail)
        if job is not None:
            return Accepted(tail, Watch(session, job.id, job, job.journal.first))
        ended = await store.job(known.job_id)
        if ended is None:
            return Accepted(tail)
        return Accepted(tail, Watch(session, ended.job_id, None, ended.length - 1))


def _refuse_unnegotiated(submit: Submit, features: frozenset[str]) -> None:
    """A bound that was asked for but not negotiated must not be ignored silently (§6.2)."""
    lease = submit.lease_request or {}
    wanted: list[str] = [name for name in (Feature.COST_BUDGET, Feature.MODEL_USE) if name in lease]
    if submit.lease_constraints is not None and submit.lease_constraints.expires_at is not None:
        wanted.append(Feature.LEASE_EXPIRES_AT)
    missing = [name for name in wanted if name not in features]
    if missing:
        raise InvalidRequest(f"not negotiated in this session: {', '.join(missing)}")


def wants_credentials(session: Session) -> bool:
    """Whether its jobs are to have credentials, if their leases need any (§9.8)."""
    return Feature.PROVISIONED_CREDENTIALS in session.features


def _origin(request: Request) -> Origin:
    session = request.session
    return Origin(
        principal=session.principal,
        session_id=session.id,
        submitters={session.id},
        trace=request.trace,
        credentials=wants_credentials(session),
        streams=Feature.RESULT_CHUNK in session.features,
    )


def _accepted_tail(request: Request, accepted: bytes) -> bytes:
    payload: JsonObject = loads_exact(accepted)
    return accepted_tail({**payload, "request_id": request.id})


def _key_row(
    request: Request, job_id: str, accepted: bytes, now: float, core: Core
) -> KeyRow | None:
    key = request.submit.idempotency_key
    if key is None:
        return None
    return KeyRow(
        principal=request.session.principal,
        key=key,
        fingerprint=fingerprint(request.submit),
        job_id=job_id,
        accepted=accepted,
        expires_at=now + core.limits.idempotency_seconds,
    )
