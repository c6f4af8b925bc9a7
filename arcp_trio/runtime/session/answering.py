"""Answers of people to the questions of jobs; `OpenQuestion` takes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from arcp_trio.runtime.job.commands import AnswerTo, answer_question, no_question
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.notices import frame
from arcp_trio.runtime.session.outbox import Promise
from arcp_trio.wire.json import dumps
from arcp_trio.wire.messages import AnswerQuestion, QuestionAnswered
from arcp_trio.wire.payloads import to_json

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.commands import Obeyed
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.clerk import Request
    from arcp_trio.runtime.session.session import Session


class Answering:
    """Takes the answers that come in one session."""

    def __init__(
        self,
        core: Core,
        jobs: Jobs,
        session: Session,
        ask: Callable[[Request, AnswerTo, Callable[[Obeyed], None]], None],
    ) -> None:
        """Take answers of `session`; `ask` has another node settle the questions of its jobs."""
        self._core = core
        self._jobs = jobs
        self._session = session
        self._ask = ask

    async def answer(self, request: Request, message: AnswerQuestion) -> None:
        """Settle an open question, and promise the client that its answer is the one.

        Raises:
            JobNotFound: there is no such question that is open, or the principal may not know of
                the job; the same words.
            PermissionDenied: the principal only observes the job.
            InvalidRequest: the answer is not what was asked for.
            InternalError: it is too large, or the question cannot be read from the store, yet.
        """
        command = self._command(message)
        job = self._jobs.live.get(message.job_id)
        if job is not None and self._may_observe(job.principal):
            self._tell(request, message, await answer_question(job, command))
            return
        # The same work for a job of somebody else as for no job at all.
        owner = await self._session.reads.owner(message.job_id)
        if self._core.store.shared is None or owner is None or not self._may_observe(owner):
            raise no_question()
        row = await self._session.reads.job(message.job_id)
        if row is None or row.finished_at is not None:
            raise no_question()
        self._refuse_if_too_large(message)
        self._ask(request, command, partial(self._tell, request, message))

    def _may_observe(self, owner: str) -> bool:
        return self._core.policy.may_observe(self._session.principal, owner)

    def _refuse_if_too_large(self, message: AnswerQuestion) -> None:
        """Refuse what no job takes, before it is stored for another node."""
        most = self._core.limits.memo_bytes
        if len(dumps([message.answer, message.reason])) > most:
            raise limit_hit("memo_bytes", most)

    def _command(self, message: AnswerQuestion) -> AnswerTo:
        return AnswerTo(
            job_id=message.job_id,
            question_id=message.question_id,
            answer=message.answer,
            scope=message.scope,
            reason=message.reason,
            by=self._session.principal,
        )

    def _tell(self, request: Request, message: AnswerQuestion, _obeyed: Obeyed) -> None:
        said = QuestionAnswered(
            request_id=request.id, job_id=message.job_id, question_id=message.question_id
        )
        # The answer is in the store's queue, so it is stored before this promise can be sent.
        self._session.tell(Promise(frame(said.type, to_json(said), job_id=said.job_id)))
