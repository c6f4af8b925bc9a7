"""The clerk: executes a session's commands, one after the other, in the order they came."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import attrs

from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.notices import frame, refusal
from arcp_trio.runtime.session.observing import Observing
from arcp_trio.runtime.session.outbox import Answer, Leave, Promise
from arcp_trio.runtime.session.unsent import Farewell
from arcp_trio.store.writes import CancelJob
from arcp_trio.wire.errors import (
    ArcpError,
    InternalError,
    InvalidRequest,
    JobNotFound,
    PermissionDenied,
)
from arcp_trio.wire.features import Feature
from arcp_trio.wire.messages import (
    Cancel,
    Close,
    Hello,
    ListJobs,
    Message,
    SessionResume,
    Submit,
    Subscribe,
    Unsubscribe,
)

if TYPE_CHECKING:
    from arcp_trio.runtime.connection.connection import Connection
    from arcp_trio.runtime.connection.handshake import Reattach
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.runtime.session.submission import Submissions
    from arcp_trio.store.records import Status

log = logging.getLogger(__name__)

NORMAL_CLOSURE = 1000


@attrs.define(eq=False)
class Request:
    """Something a client asked for, or a frame of its that could not be read."""

    connection: Connection
    id: str | None
    trace: str | None
    """Of its trace, what the client said: the id, or a whole `traceparent` (§11)."""
    message: Message | ArcpError
    size: int
    """Of its frame."""


Command: TypeAlias = "Request | Reattach"


class Clerk:
    """Never waits for a commit or an agent: what takes time goes on in a task of its own."""

    def __init__(self, core: Core, jobs: Jobs, session: Session, submissions: Submissions) -> None:
        self._core = core
        self._jobs = jobs
        self._session = session
        self._submissions = submissions
        self._observing = Observing(core, jobs, session)

    async def run(self) -> None:
        """Execute commands until cancelled."""
        session = self._session
        while True:
            await session.room_for_answers()
            command = await session.inbox.receive()
            try:
                if isinstance(command, Request):
                    await self._serve(command)
                else:
                    await command.carry_out(session)
            finally:
                session.request_done(command.size)
                session.release()

    async def _serve(self, request: Request) -> None:
        with self._fence(request):
            await self._execute(request)

    @contextmanager
    def _fence(self, request: Request) -> Generator[None]:
        """What goes wrong is the answer to the request, and nothing more."""
        try:
            yield
        except ArcpError as error:
            self._refuse(request, error)
        except Exception:
            log.exception("request failed", extra=self._facts(request))
            self._refuse(request, InternalError("the request could not be processed"))

    def _refuse(self, request: Request, error: ArcpError) -> None:
        message = request.message
        self._core.metrics.refused(error)
        refused = {"code": error.code, "error": error.message}
        log.debug("request refused", extra=self._facts(request) | refused)
        job_id = message.job_id if isinstance(message, Cancel | Subscribe) else None
        tail = refusal(error, request_id=request.id, job_id=job_id)
        self._session.tell(Answer(request.connection, tail))

    def _facts(self, request: Request) -> dict[str, object]:
        kind = type(request.message).__name__
        return self._session.facts | {"request": kind, "request_id": request.id}

    def _in_turn(self, request: Request, act: Callable[[], None]) -> None:
        """Act behind the answers to the submits before, which this must not overtake."""

        def act_fenced() -> None:
            with self._fence(request):
                act()

        self._submissions.in_turn(self._session, act_fenced)

    async def _execute(self, request: Request) -> None:
        session, message = self._session, request.message
        match message:
            case ArcpError():
                # It may have been a submit, and some clients match answers by their order.
                self._in_turn(request, partial(self._refuse, request, message))
            case Submit():
                self._submissions.begin(session, request, message)
            case Cancel():
                await self._cancel(request, message)
            case Close():
                self._in_turn(request, partial(self._close, request, message))
            case Hello() | SessionResume():
                raise InvalidRequest("the session is open already")
            case ListJobs():
                self._require(Feature.LIST_JOBS)
                await self._observing.list(request, message)
            case Subscribe():
                self._require(Feature.SUBSCRIBE)
                await self._observing.subscribe(request, message)
            case Unsubscribe():
                self._require(Feature.SUBSCRIBE)
                self._observing.unsubscribe(message)
            case _:
                raise AssertionError(message)

    def _close(self, request: Request, message: Close) -> None:
        """The jobs go on; from now on any session of the principal may cancel them (§6.7).

        The session stays resumable for its window.
        """
        session = self._session
        self._jobs.session_gone(session.id)
        log.info("session closed", extra=session.facts)
        payload = {} if message.reason is None else {"reason": message.reason}
        closed = frame("session.closed", payload)
        session.tell(Leave(request.connection, Farewell(NORMAL_CLOSURE, "closed", closed)))
        request.connection.hurry()

    # -- cancel (§7.4)

    async def _cancel(self, request: Request, message: Cancel) -> None:
        job = self._jobs.live.get(message.job_id)
        if job is None:
            row = await self._core.store.job(message.job_id)
            self._check_visible(None if row is None else row.principal)
            assert row is not None
            self._refuse_ended(request, row.job_id, row.status)
            return
        self._check_visible(job.principal)
        cancel = partial(self._cancel_live, request, message, job)
        line = self._session.last_place
        if self._session.id in job.submitters or line is None or line.is_set():
            cancel()
        else:
            # A submit that is not answered yet may make this session one of the job's submitters.
            self._in_turn(request, cancel)

    def _cancel_live(self, request: Request, message: Cancel, job: Job) -> None:
        self._check_may_cancel(job)
        decided = job.decide(outcome.cancelled(message.reason))
        ends = job.outcome
        if not decided and ends is not None and (job.sealed or ends.status != "cancelled"):
            self._refuse_ended(request, job.id, ends.status)
            return
        payload = {"job_id": job.id} | (
            {} if message.reason is None else {"reason": message.reason}
        )
        tail = frame("job.cancelled", payload, job_id=job.id)
        if decided:
            # Before the promise: what comes between it and the job's end does not break it.
            self._core.store.put(CancelJob(job.id, message.reason or ""))
        # Logged is the first, however often it is asked for.
        self._session.tell(Promise(tail) if decided else Answer(request.connection, tail))
        job.wind_up()

    def _check_visible(self, owner: str | None) -> None:
        """What a principal may not observe, it cannot tell from what does not exist (§6.6)."""
        may_observe = self._core.policy.may_observe
        if owner is None or not (self._is_operator or may_observe(self._session.principal, owner)):
            raise JobNotFound("there is no such job")

    def _check_may_cancel(self, job: Job) -> None:
        """Sessions that submitted it may; when none is left, any of its principal's.

        Who may only observe it may not (§7.6).
        """
        session = self._session
        left_alone = not job.submitters and session.principal == job.principal
        if not (session.id in job.submitters or left_alone or self._is_operator):
            raise PermissionDenied("only the session that submitted the job may cancel it")

    def _require(self, feature: str) -> None:
        if feature not in self._session.features:
            raise InvalidRequest(f"not negotiated in this session: {feature}")

    @property
    def _is_operator(self) -> bool:
        return self._session.principal in self._core.operators

    def _refuse_ended(self, request: Request, job_id: str, status: Status) -> None:
        if not request.connection.dialect.quiet_after_end:
            raise InvalidRequest(f"job {job_id} has ended: {status}")
