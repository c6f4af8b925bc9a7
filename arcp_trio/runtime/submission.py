"""From `job.submit` to `job.accepted`, or to the refusal (§7.1, §7.2)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.authority.lease import Lease
from arcp_trio.runtime.acceptance import (
    Origin,
    Wanted,
    acceptance,
    accepted_tail,
    draft,
    give_up,
    provide,
    row,
)
from arcp_trio.runtime.notices import refusal
from arcp_trio.runtime.outbox import Answer, Promise
from arcp_trio.runtime.watch import Watch
from arcp_trio.store.queue import Group
from arcp_trio.store.records import KeyRow
from arcp_trio.store.writes import AcceptJob
from arcp_trio.wire.errors import ArcpError, DuplicateKey, InternalError, InvalidRequest
from arcp_trio.wire.features import Feature
from arcp_trio.wire.fingerprint import fingerprint
from arcp_trio.wire.json import JsonObject, dumps, loads_exact
from arcp_trio.wire.messages import Submit

if TYPE_CHECKING:
    from arcp_trio.runtime.connection import Connection
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job import Job
    from arcp_trio.runtime.session import Session

log = logging.getLogger(__name__)


class _Place:
    """A place in a session's line: acceptances and refusals leave in the order of their submits.

    Other vendors' clients match answers by order (§7.1 has no correlation id).
    """

    def __init__(self, session: Session) -> None:
        session.answer_due()
        self._session = session
        self._before = session.last_place
        self._done = session.last_place = trio.Event()

    async def turn(self) -> None:
        """Wait until everyone before has left."""
        if self._before is not None:
            await self._before.wait()

    def leave(self) -> None:
        """Let the next one have its turn."""
        self._done.set()
        self._session.answer_given()


@attrs.define(eq=False)
class _Claim:
    """An idempotency key whose first submit is still being decided."""

    settled: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False, kw_only=True)
class _Request:
    session: Session
    connection: Connection
    id: str
    trace: str | None
    submit: Submit
    size: int
    """Of its frame."""
    place: _Place
    claim: _Claim | None
    """Held if this submit is the first to bring its key."""


@attrs.frozen
class _Accepted:
    """What a submit came to: a job, new or known, and whether this session begins to watch it."""

    tail: bytes
    """Of its `job.accepted`, finished before anything is stored: from then on nothing can fail."""
    watch: Watch | None = None
    new: Job | None = None


class Submissions:
    """Decides on submits, each in a task of its own: a slow one holds up no other command."""

    def __init__(self, core: Core, nursery: trio.Nursery) -> None:
        self._core = core
        self._nursery = nursery
        self._claims: dict[tuple[str, str], _Claim] = {}

    def begin(
        self,
        session: Session,
        connection: Connection,
        request_id: str,
        trace: str | None,
        submit: Submit,
        size: int,
    ) -> None:
        """Take the submit's place in line and its key, at once; what takes time is for a task."""
        first_in_line = session.last_place is None or session.last_place.is_set()
        request = _Request(
            session=session,
            connection=connection,
            id=request_id,
            trace=trace,
            submit=submit,
            size=size,
            place=_Place(session),
            claim=self._claim(session.principal, submit.idempotency_key),
        )
        alone = submit.idempotency_key is None and not _wants_credentials(session)
        if alone and first_in_line:
            self._accept_at_once(request)
        else:
            session.hold()
            session.request_begun(size)
            self._nursery.start_soon(self._process, request, name=f"submit {request_id}")

    def _accept_at_once(self, request: _Request) -> None:
        """What needs no look into the store, no credentials and no turn needs no task either.

        The promise stands before anything of the job, and behind its acceptance in the store's
        queue: so it is sent once both are stored. The job starts when the acceptance is.
        """
        session = request.session
        try:
            accepted, group = self._accept(request, self._draft(request))
        except ArcpError as error:
            self._refuse(request, error)
        else:
            assert accepted.new is not None
            self._promise(session, accepted)
            group.then(partial(self._core.jobs.start, accepted.new))
        finally:
            request.place.leave()

    def in_turn(self, session: Session, act: Callable[[], None]) -> None:
        """Have something happen once every submit before it is answered; it must not fail."""
        session.hold()
        self._nursery.start_soon(self._act_in_turn, session, _Place(session), act, name="in turn")

    async def _act_in_turn(self, session: Session, place: _Place, act: Callable[[], None]) -> None:
        try:
            await place.turn()
            act()
        finally:
            place.leave()
            session.release()

    def _claim(self, principal: str, key: str | None) -> _Claim | None:
        if key is None or (principal, key) in self._claims:
            return None
        claim = self._claims[principal, key] = _Claim()
        return claim

    async def _process(self, request: _Request) -> None:
        session = request.session
        try:
            verdict = await self._judge(request)
            await request.place.turn()
            if isinstance(verdict, ArcpError):
                self._refuse(request, verdict)
            else:
                self._release(request, verdict)
        finally:
            request.place.leave()
            session.request_done(request.size)
            session.release()

    async def _judge(self, request: _Request) -> _Accepted | ArcpError:
        try:
            return await self._decide(request)
        except ArcpError as error:
            return error
        except Exception:
            log.exception("submit failed", extra=_facts(request))
            return InternalError("the submit could not be processed")

    async def _decide(self, request: _Request) -> _Accepted:
        key = request.submit.idempotency_key
        if key is None:
            return await self._accept_stored(request)
        principal = request.session.principal
        while request.claim is None:
            other = self._claims.get((principal, key))
            if other is not None:
                await other.settled.wait()
            request.claim = self._claim(principal, key)
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

    async def _accept_stored(self, request: _Request) -> _Accepted:
        job = self._draft(request)
        try:
            await provide(job)
        except BaseException:
            give_up(job)
            raise
        accepted, group = self._accept(request, job)
        try:
            await group.committed()
        except BaseException:
            give_up(job)
            raise
        return accepted

    def _draft(self, request: _Request) -> Job:
        return draft(self._core, self._wanted(request), _origin(request))

    def _accept(self, request: _Request, job: Job) -> tuple[_Accepted, Group]:
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
        return _Accepted(tail, Watch(session, job.id, job), job), group

    def _wanted(self, request: _Request) -> Wanted:
        core, submit = self._core, request.submit
        _refuse_unnegotiated(submit, request.session.features)
        constraints = submit.lease_constraints
        expires_at = None if constraints is None else constraints.expires_at
        return Wanted(
            lease=Lease.read(submit.lease_request, expires_at, now=core.clock.now()),
            agent=core.agents.resolve(submit.agent),
            input=submit.input,
            max_runtime=submit.max_runtime_sec,
        )

    # -- a known job

    async def _repeat(self, request: _Request, known: KeyRow) -> _Accepted:
        """The same key again: the same acceptance, to another session also the events (§7.2)."""
        if fingerprint(request.submit) != known.fingerprint:
            raise DuplicateKey("this idempotency key came with other parameters before")
        session, store = request.session, self._core.store
        _refuse_unnegotiated(request.submit, session.features)
        tail = _accepted_tail(request, known.accepted)
        if known.job_id in session.accepting:
            return _Accepted(tail)
        row = await store.job(known.job_id)
        job = self._core.jobs.live.get(known.job_id)
        if job is not None:
            job.submitters.add(session.id)  # also if it had been closed since
        if row is None or session.id in row.submitters:
            return _Accepted(tail)
        if job is not None:
            return _Accepted(tail, Watch(session, job.id, job, job.journal.first))
        ended = await store.job(known.job_id)
        if ended is None:
            return _Accepted(tail)
        return _Accepted(tail, Watch(session, ended.job_id, None, ended.length - 1))

    # -- the answer

    def _refuse(self, request: _Request, error: ArcpError) -> None:
        self._core.metrics.refused(error)
        refused = {"code": error.code, "error": error.message}
        log.info("submit refused", extra=_facts(request) | refused)
        tail = refusal(error, request_id=request.id)
        request.session.tell(Answer(request.connection, tail))

    def _release(self, request: _Request, verdict: _Accepted) -> None:
        """Promise, then watch, then start: nothing of a job can precede its acceptance."""
        session = request.session
        if verdict.watch is None:
            # Said again, for this session to match it; what is logged is the first.
            session.tell(Answer(request.connection, verdict.tail))
            return
        self._promise(session, verdict)
        if verdict.new is not None:
            self._core.jobs.start(verdict.new)

    def _promise(self, session: Session, verdict: _Accepted) -> None:
        watch = verdict.watch
        if watch is not None:
            session.stop_observing(watch.job_id)  # it gets the job's events as a submitter now
        session.tell(Promise(verdict.tail, watch))
        if watch is not None and watch.job is not None:
            watch.job.journal.watches[session.id] = watch


def _refuse_unnegotiated(submit: Submit, features: frozenset[str]) -> None:
    """A bound that was asked for but not negotiated must not be ignored silently (§6.2)."""
    lease = submit.lease_request or {}
    wanted: list[str] = [name for name in (Feature.COST_BUDGET, Feature.MODEL_USE) if name in lease]
    if submit.lease_constraints is not None and submit.lease_constraints.expires_at is not None:
        wanted.append(Feature.LEASE_EXPIRES_AT)
    missing = [name for name in wanted if name not in features]
    if missing:
        raise InvalidRequest(f"not negotiated in this session: {', '.join(missing)}")


def _facts(request: _Request) -> dict[str, object]:
    return request.session.facts | {"agent": request.submit.agent, "request_id": request.id}


def _wants_credentials(session: Session) -> bool:
    return Feature.PROVISIONED_CREDENTIALS in session.features


def _origin(request: _Request) -> Origin:
    session = request.session
    return Origin(
        principal=session.principal,
        session_id=session.id,
        submitters={session.id},
        trace=request.trace,
        credentials=_wants_credentials(session),
        streams=Feature.RESULT_CHUNK in session.features,
    )


def _accepted_tail(request: _Request, accepted: bytes) -> bytes:
    payload: JsonObject = loads_exact(accepted)
    return accepted_tail({**payload, "request_id": request.id})


def _key_row(
    request: _Request, job_id: str, accepted: bytes, now: float, core: Core
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
