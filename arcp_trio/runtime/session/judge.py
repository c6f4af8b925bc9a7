"""Deciding submits: each leads to a new job, or to the one that its key stands for (§7.1, §7.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

import msgspec
import trio

from arcp_trio.authority.lease import Lease
from arcp_trio.runtime.job.acceptance import AcceptanceRefused, NewJob, accept, accepted_tail
from arcp_trio.runtime.job.granting import granted
from arcp_trio.runtime.job.spec import IdempotencyKey, JobSpec
from arcp_trio.runtime.session.claims import Claim, Claims
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.store.records import JobRow, KeyRow
from arcp_trio.store.shared_writes import SubmitAgain
from arcp_trio.wire.errors import DuplicateKey, InvalidRequest, JobNotFound
from arcp_trio.wire.features import Feature
from arcp_trio.wire.fingerprint import fingerprint
from arcp_trio.wire.json import loads_exact, loads_object, object_in, text_in

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.runtime.session.submission import Submission
    from arcp_trio.wire.messages import Submit

KEY_SECONDS: Final = 0.1
"""How often to look whether another node that has claimed a key has accepted its job."""

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class Decision(msgspec.Struct, frozen=True):
    """The job that a submit leads to, new or known, and the watch of it that is to begin."""

    tail: bytes
    """The tail of its `job.accepted`."""
    watch: Watch
    new: NewJob | None = None
    again: bool = False
    """The session has submitted the job before: it may be watching it, or have had its terminal."""


class Judge:
    """Decides to which job a submit leads. Submits that share a key are decided one at a time."""

    def __init__(self, core: Core, jobs: Jobs) -> None:
        self._core = core
        self._jobs = jobs
        self.claims = Claims(core.ledger.submits)

    async def decide(self, submission: Submission) -> Decision:
        """Accept a new job, or find the one that the key stands for.

        Raises:
            ArcpError: the reason why there is no job.
            ConnectionOver: the submit has waited for another one until its connection ended.
        """
        claim, known, group = submission.claim, None, None
        if claim is None:
            return await self._accept(submission)
        try:
            if claim.waits:
                await claim.turn(submission.request.attachment)
            known = claim.known or await self._look_up(submission, claim)
            patience_ends = math.inf
            while known is None:
                with suppress(AcceptanceRefused):
                    decision = await self._accept(submission)
                    if decision.new is not None:
                        known, group = decision.new.key, decision.new.group
                    return decision
                in_time = trio.current_time() + self._core.limits.issue_seconds
                patience_ends = min(patience_ends, in_time)
                known = await self._known_elsewhere(submission, claim, patience_ends)
            return await self._repeat(submission, known)
        finally:
            self.claims.leave(claim, known, group)

    # -- a new job

    async def _accept(self, submission: Submission) -> Decision:
        submit = submission.submit
        key = None
        if submit.idempotency_key is not None:
            digest = await self._look_at(submission, fingerprint, submit)
            key = IdempotencyKey(submit.idempotency_key, digest)
        new = await accept(self._jobs, await self._look_at(submission, self._spec, submission, key))
        submission.session.workload.count(new.group)
        if key is not None and self._core.store.may_refuse:
            await new.stored()
        return Decision(new.tail, Watch(submission.session, new.job.id, new.job.journal), new)

    def _spec(self, submission: Submission, key: IdempotencyKey | None) -> JobSpec:
        session, submit = submission.session, submission.submit
        if _is_forgotten(submit) and submit.lease_request:
            raise InvalidRequest("forget is for jobs without a lease")
        constraints = submit.lease_constraints
        expires_at = None if constraints is None else constraints.expires_at
        asked = Lease.read(
            submit.lease_request,
            expires_at,
            now=self._core.clock.now(),
            sandbox=constraints is not None and constraints.sandbox is not None,
        )
        agent = self._jobs.agents.resolve(submit.agent)
        data = submit.input_text.text
        agent.check_input(data, "$.payload.input")
        return JobSpec(
            lease=granted(self._core, session.principal, agent, asked),
            agent=agent,
            input=data,
            max_runtime=submit.max_runtime_sec,
            principal=session.principal,
            session_id=session.id,
            trace=submission.request.trace,
            sends_chunks=Feature.RESULT_CHUNK in session.features,
            knows_questions=Feature.QUESTIONS in session.features,
            wants_credentials=submission.wants_credentials,
            request_id=submission.request.id,
            key=key,
            forget=_is_forgotten(submit),
        )

    # -- a known job

    async def _look_up(self, submission: Submission, claim: Claim) -> KeyRow | None:
        async with submission.session.workload.commands:
            return await submission.session.reads.key(*claim.owner, self._core.clock.now())

    async def _known_elsewhere(
        self, submission: Submission, claim: Claim, patience_ends: float
    ) -> KeyRow | None:
        """Return what another node has made the key stand for; None if it accepts no job, either.

        Raises:
            AcceptanceRefused: that node does not decide, or the session is elsewhere.
        """
        shared = self._core.store.shared
        await self._notice_theft(submission.session)
        with trio.move_on_at(patience_ends):
            while not submission.session.elsewhere:
                claimed = shared is None or await shared.claimant(*claim.owner) is not None
                known = await self._look_up(submission, claim)
                if known is not None:
                    return known
                await trio.sleep(KEY_SECONDS)  # that node waits for credentials
                if not claimed:
                    return None
        raise AcceptanceRefused

    async def _notice_theft(self, session: Session) -> None:
        """End the session here if the job was refused because another node has the session."""
        shared = self._core.store.shared
        if shared is not None:
            place = await shared.place(session.id)
            if place is None or place.node != shared.node:
                session.went_elsewhere()

    async def _repeat(self, submission: Submission, known: KeyRow) -> Decision:
        """Return the same acceptance again, with a watch of the job (§7.2).

        For another session the watch begins with the job's first event, while the job runs.
        """
        if not await self._look_at(submission, _is_same, submission.submit, known):
            raise DuplicateKey("this idempotency key came with other parameters before")
        session = submission.session
        tail = accepted_tail(loads_exact(known.accepted), submission.request.id)
        again = known.job_id in session.accepting
        async with session.workload.commands:
            row = await session.reads.job(known.job_id)
        if row is not None and session.id in row.submitters:
            again = True
            await self._submit_again(session, row)
        job = self._jobs.live.get(known.job_id)
        if job is not None:
            job.submitters.add(session.id)  # even if the session was closed in between
            watch = Watch(session, job.id, job.journal, job.journal.first)
            return Decision(tail, watch, again=again)
        if row is None or row.finished_at is None:
            # It was stored since then, or has ended, or is elsewhere.
            row = await session.reads.job(known.job_id)
        if row is None:
            raise JobNotFound(
                f"{known.job_id}, the job of this idempotency_key, has ended, and its end is"
                " no longer kept: another key starts another job"
            )
        goes_on = row.finished_at is None  # at another node
        cursor: int | None = row.length - 1
        if goes_on or (row.session_id == session.id and not again):
            # It runs, or is the session's own and began before a restart: it is owed everything.
            cursor = await session.reads.index_after(row.job_id, 0)
        journal = self._jobs.journal(row.job_id, row.length) if goes_on else None
        return Decision(tail, Watch(session, row.job_id, journal, cursor or 0), again=again)

    async def _submit_again(self, session: Session, row: JobRow) -> None:
        """Have the other nodes know whose the job is, if the session was closed in between."""
        if self._core.store.shared is not None and row.finished_at is None:
            await self._core.store.put(SubmitAgain(row.job_id, session.id)).committed()

    async def _look_at(
        self, submission: Submission, look: Callable[[*_Ts], _T], *values: *_Ts
    ) -> _T:
        """Look at the parameters of a submit; at large ones in the principal's turn."""
        if not submission.submit.is_large:
            return look(*values)
        async with self._core.long_steps.turn(submission.session.principal):
            return look(*values)


def _is_same(submit: Submit, known: KeyRow) -> bool:
    """Whether a submit has the parameters with which its key came first (§7.2)."""
    if fingerprint(submit) == known.fingerprint:
        return True
    constraints = object_in(loads_object(known.accepted).get("lease_constraints"))
    expires_at = text_in(constraints.get("expires_at"))
    return fingerprint(submit, expires_at=expires_at) == known.fingerprint


def _is_forgotten(submit: Submit) -> bool:
    return submit.extras is not None and submit.extras.forget
