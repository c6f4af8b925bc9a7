"""The clerk: executes a session's commands in the order they came."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import trio

from arcp_trio.runtime.farewell import Farewell
from arcp_trio.runtime.notices import frame, refusal, store_trouble
from arcp_trio.runtime.session.answering import Answering
from arcp_trio.runtime.session.cancelling import Cancelling
from arcp_trio.runtime.session.listing import Lister
from arcp_trio.runtime.session.observing import Observing
from arcp_trio.runtime.session.outbox import Answer, Leave
from arcp_trio.runtime.views import View
from arcp_trio.runtime.workload import WorkPlaces
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.shared_writes import CloseSession
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire.errors import (
    ArcpError,
    InternalError,
    InvalidRequest,
    JobNotFound,
    PermissionDenied,
)
from arcp_trio.wire.features import Feature
from arcp_trio.wire.messages import (
    AnswerQuestion,
    Cancel,
    Close,
    Hello,
    ListJobs,
    MakeToken,
    Message,
    SessionResume,
    Stop,
    Submit,
    Subscribe,
    TokenMade,
    Unsubscribe,
)
from arcp_trio.wire.payloads import to_json
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.commands import JobCommand, Obeyed
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.attachment import Attachment
    from arcp_trio.runtime.session.other_nodes import OtherNodes
    from arcp_trio.runtime.session.resuming import Resume
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.runtime.session.submission import Submissions

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class Request:
    """Something a client asked for, or a frame of the client that is malformed."""

    attachment: Attachment
    id: str | None
    trace: str | None
    """What the client said of its trace: the id, or a whole `traceparent` (§11)."""
    message: Message | ArcpError
    size: int
    """Bytes of its frame."""


_ABOUT_A_JOB: Final = (Cancel, Stop, Subscribe, AnswerQuestion)
"""Messages whose refusal names their job."""

_LOOKING: Final = (ArcpError, Hello, SessionResume, ListJobs, Subscribe, Unsubscribe, Close)
"""What a session for looking only may send, beside what its connection deals with."""

Command: TypeAlias = "Request | Resume"


class Clerk:
    """Executes one command at a time; work that waits for agents or commits has its own task."""

    def __init__(
        self,
        core: Core,
        jobs: Jobs,
        session: Session,
        submissions: Submissions,
        others: OtherNodes | None,
    ) -> None:
        self._core = core
        self._jobs = jobs
        self._session = session
        self._submissions = submissions
        self._others = others
        self._answering = Answering(core, jobs, session, self._ask)
        self._cancelling = Cancelling(core, jobs, session, self._in_turn, self._ask)
        self._lister = Lister(core, jobs, session)
        self._observing = Observing(core, jobs, session)

    async def run(self) -> None:
        """Execute commands until cancelled."""
        session = self._session
        while True:
            await session.outbox.room_for_answers()
            command = await session.inbox.take()
            try:
                if isinstance(command, Request):
                    async with self._places(command):
                        await self._serve(command)
                        await trio.lowlevel.checkpoint()
                else:
                    await command.carry_out(session)
            finally:
                session.inbox.done(command.size)
                session.release()

    def _places(self, request: Request) -> WorkPlaces:
        workload = self._session.workload
        return workload.listings if isinstance(request.message, ListJobs) else workload.commands

    async def _serve(self, request: Request) -> None:
        with self._fence(request):
            if self._session.scope is not None and not isinstance(request.message, _LOOKING):
                raise PermissionDenied("this token is for looking only: it lists and follows jobs")
            await self._execute(request)

    @contextmanager
    def _fence(self, request: Request) -> Generator[None]:
        """Turn an error into the answer to the request, so that it ends nothing else."""
        try:
            yield
        except ArcpError as error:
            self._refuse(request, error)
        except Fenced:
            pass  # the connection is about to end, and the client asks the next node
        except StoreError as error:
            log.warning("request failed", extra=self._facts(request) | {"error": str(error)})
            self._refuse(request, store_trouble(self._core.store))
        except Exception:
            log.exception("request failed", extra=self._facts(request))
            self._refuse(request, InternalError("the request could not be processed"))

    def _refuse(self, request: Request, error: ArcpError) -> None:
        message = request.message
        self._core.metrics.refused(error)
        refused = {"code": error.code, "error": error.message}
        log.debug("request refused", extra=self._facts(request) | refused)
        job_id = message.job_id if isinstance(message, _ABOUT_A_JOB) else None
        tail = refusal(error, request_id=request.id, job_id=job_id)
        self._session.tell(Answer(request.attachment, tail))

    def _facts(self, request: Request) -> dict[str, object]:
        kind = type(request.message).__name__
        return self._session.facts | {"request": kind, "request_id": request.id}

    def _in_turn(self, request: Request, act: Callable[[], None]) -> None:
        """Act after the earlier submits are answered: this answer must not overtake theirs."""

        def act_fenced() -> None:
            with self._fence(request):
                act()

        self._submissions.in_turn(self._session, act_fenced)

    def _ask(self, request: Request, command: JobCommand, act: Callable[[Obeyed], None]) -> None:
        """Act on what comes of a command at another node; later submits are answered after that."""

        def told(answer: Obeyed | ArcpError) -> None:
            with self._fence(request):
                if isinstance(answer, ArcpError):
                    raise answer
                act(answer)

        others = self._others
        assert others is not None, "a job runs elsewhere"

        async def ask_fenced() -> None:
            with self._fence(request):
                await others.ask(command, told)

        self._submissions.keep_place(self._session, request.size, ask_fenced)

    async def _execute(self, request: Request) -> None:
        session, message = self._session, request.message
        match message:
            case ArcpError():
                # It may be a malformed submit, and some clients match answers by their order.
                self._in_turn(request, partial(self._refuse, request, message))
            case Submit():
                await session.workload.room_for_acceptance()
                await self._submissions.begin(session, request, message)
            case Cancel() | Stop() | AnswerQuestion() | MakeToken():
                await self._act(request, message)
            case Close():
                self._in_turn(request, partial(self._close, request, message))
            case Hello() | SessionResume():
                raise InvalidRequest("the session is open already")
            case ListJobs():
                self._require(Feature.LIST_JOBS)
                await self._lister.list(request, message)
            case Subscribe():
                self._require(Feature.SUBSCRIBE)
                await self._observing.subscribe(request, message)
            case Unsubscribe():
                self._require(Feature.SUBSCRIBE)
                self._observing.unsubscribe(message)
            case _:
                raise AssertionError(message)

    async def _act(
        self, request: Request, message: Cancel | Stop | AnswerQuestion | MakeToken
    ) -> None:
        match message:
            case Cancel():
                await self._cancelling.cancel(request, message)
            case Stop():
                await self._cancelling.stop(request, message)
            case AnswerQuestion():
                self._require(Feature.QUESTIONS)
                await self._answering.answer(request, message)
            case MakeToken():
                self._require(Feature.TOKENS)
                await self._make_token(request, message)

    async def _make_token(self, request: Request, message: MakeToken) -> None:
        """Answer with a token with which one can look at jobs, or with a code that is good once."""
        core, session = self._core, self._session
        now = core.clock.now()
        if message.job_id is not None:
            owner = await session.reads.owner(message.job_id)
            if owner is None or not session.may_see(message.job_id, owner):
                raise JobNotFound("there is no such job")
        try:
            if message.replaces is not None:
                token = core.codes.make(session.principal, message.replaces, message.seconds)
            else:
                view = View.lasting(message.seconds, session.principal, message.job_id, now=now)
                token = core.view_tokens.sign(view)
        except ValueError as error:
            raise InvalidRequest(f"{error} @ $.payload.seconds") from None
        until = rfc3339(now + message.seconds)
        made = TokenMade(request_id=request.id, token=token, expires_at=until)
        session.tell(Answer(request.attachment, frame(made.type, to_json(made))))

    def _close(self, request: Request, message: Close) -> None:
        """Close the connection; the session stays resumable for its window (§6.7).

        Its jobs go on, and from now on any session of the principal may cancel them.
        """
        session = self._session
        self._jobs.remove_submitter(session.id)
        log.debug("session closed", extra=session.facts)
        payload = {} if message.reason is None else {"reason": message.reason}
        closed = frame("session.closed", payload)
        leave = Leave(request.attachment, Farewell(CloseCode.NORMAL, "closed", closed))
        if self._core.store.shared is not None:
            # A client that knows of it may cancel at another node, which looks into the store.
            leave.stored = self._core.store.put(CloseSession(session.id))
        session.tell(leave)
        request.attachment.closing.within(self._core.limits.close_seconds)

    def _require(self, feature: str) -> None:
        if feature not in self._session.features:
            raise InvalidRequest(f"not negotiated in this session: {feature}")
