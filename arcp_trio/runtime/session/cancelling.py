"""Cancelling and stopping jobs: who may, and what is promised (§7.4); `end_job` does it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from arcp_trio.runtime.job.commands import EndJob, end_job
from arcp_trio.runtime.notices import frame
from arcp_trio.runtime.session.outbox import Answer, Promise
from arcp_trio.store.records import JobRow, Status
from arcp_trio.wire.errors import InvalidRequest, JobNotFound, PermissionDenied
from arcp_trio.wire.messages import Cancel, Cancelled, Stop, Stopped
from arcp_trio.wire.payloads import to_json

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.commands import Obeyed
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.clerk import Request
    from arcp_trio.runtime.session.session import Session


class Cancelling:
    """Executes one session's requests to cancel and to stop jobs."""

    def __init__(
        self,
        core: Core,
        jobs: Jobs,
        session: Session,
        in_turn: Callable[[Request, Callable[[], None]], None],
        ask: Callable[[Request, EndJob, Callable[[Obeyed], None]], None],
    ) -> None:
        """Execute requests of `session`.

        Args:
            core: what all parts of the runtime share.
            jobs: those alive here.
            session: whose requests they are.
            in_turn: acts after the session's earlier submits are answered.
            ask: has another node end a job of its own, and acts on what comes of it.
        """
        self._core = core
        self._jobs = jobs
        self._session = session
        self._in_turn = in_turn
        self._ask = ask

    async def cancel(self, request: Request, message: Cancel) -> None:
        """Decide that a job ends cancelled, and promise it to the client.

        Raises:
            JobNotFound: there is no such job, or the principal may not know of it.
            PermissionDenied: only another session may cancel it.
            InvalidRequest: it has ended.
        """
        job = await self._find(request, message.job_id)
        if job is None:
            return
        agreed = Cancelled(job_id=message.job_id, reason=message.reason)
        told, command = partial(self._tell, request, agreed), EndJob(message.job_id, message.reason)
        if isinstance(job, JobRow):
            self._check_may_cancel(job.principal, await self._stored_submitters(job.job_id))
            self._ask(request, command, told)
            return
        if self._core.store.shared is not None and self._session.id not in job.submitters:
            # Sessions at other nodes may have been closed, or have submitted the same key.
            stored = await self._stored_submitters(job.id)
            job.submitters.intersection_update(stored)
            job.submitters.update(stored)
        cancel = partial(self._cancel_live, job, command, told)
        if self._session.id in job.submitters or self._session.line.is_free:
            cancel()
        else:
            # A submit that waits for its answer may make this session one of the submitters.
            self._in_turn(request, cancel)

    def _cancel_live(self, job: Job, command: EndJob, told: Callable[[Obeyed], None]) -> None:
        self._check_may_cancel(job.principal, job.submitters)
        told(end_job(job, command))

    async def stop(self, request: Request, message: Stop) -> None:
        """Stop a job for its principal or an operator, from whichever session; promise it.

        Raises:
            JobNotFound: there is no such job, or the principal may not know of it.
            PermissionDenied: the policy forbids it, or the principal only observes the job.
            InvalidRequest: it has ended.
        """
        if not self._core.policy.allow_stop:
            raise PermissionDenied("jobs cannot be stopped here, only cancelled by their session")
        job = await self._find(request, message.job_id)
        if job is None:
            return
        principal = self._session.principal
        if not (principal == job.principal or self._is_operator):
            raise PermissionDenied("only the job's own principal may stop it")
        command = EndJob(message.job_id, message.reason, principal)
        agreed = Stopped(request_id=request.id, job_id=message.job_id, reason=message.reason)
        told = partial(self._tell, request, agreed)
        if isinstance(job, JobRow):
            self._ask(request, command, told)
        else:
            told(end_job(job, command))

    async def _find(self, request: Request, job_id: str) -> Job | JobRow | None:
        """Return a job that has not ended, by its row if it runs at another node.

        None stands for a job that has ended, and for which the client needs no answer.
        """
        job = self._jobs.live.get(job_id)
        if job is not None and self._may_see(job.principal):
            return job
        # The same work for a job of somebody else, running or not, as for no job at all.
        owner = await self._session.reads.owner(job_id)
        row = await self._session.reads.job(job_id) if owner and self._may_see(owner) else None
        if row is None:
            raise JobNotFound("there is no such job")
        if row.finished_at is None and self._core.store.shared is not None:
            return row
        self._refuse_ended(request, row.job_id, row.status)
        return None

    def _tell(self, request: Request, agreed: Cancelled | Stopped, obeyed: Obeyed) -> None:
        if obeyed.ended is not None:
            self._refuse_ended(request, agreed.job_id, obeyed.ended)
            return
        tail = frame(agreed.type, to_json(agreed), job_id=agreed.job_id)
        # Only the first promise is logged, however often the client asks.
        self._session.tell(Answer(request.attachment, tail) if obeyed.again else Promise(tail))

    def _may_see(self, owner: str) -> bool:
        """Whether the principal may know of a job; if not, it does not exist for it (§6.6)."""
        may_observe = self._core.policy.may_observe
        return self._is_operator or may_observe(self._session.principal, owner)

    async def _stored_submitters(self, job_id: str) -> frozenset[str]:
        assert self._core.store.shared is not None
        return await self._core.store.shared.submitters(job_id)

    def _check_may_cancel(self, owner: str, submitters: Collection[str]) -> None:
        """Refuse a session that did not submit the job, while one that did exists (§7.4, §7.6)."""
        session = self._session
        left_alone = not submitters and session.principal == owner
        if not (session.id in submitters or left_alone or self._is_operator):
            raise PermissionDenied("only the session that submitted the job may cancel it")

    @property
    def _is_operator(self) -> bool:
        return self._session.principal in self._core.operators

    def _refuse_ended(self, request: Request, job_id: str, status: Status) -> None:
        if not request.attachment.dialect.quiet_after_end:
            raise InvalidRequest(f"job {job_id} has ended: {status}")
