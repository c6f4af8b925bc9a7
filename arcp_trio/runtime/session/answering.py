"""Answers of people to the questions of jobs: who may answer; `OpenQuestion` takes the answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from arcp_trio.runtime.notices import frame, store_trouble
from arcp_trio.runtime.session.outbox import Promise
from arcp_trio.wire.errors import JobNotFound, PermissionDenied
from arcp_trio.wire.messages import AnswerQuestion, QuestionAnswered
from arcp_trio.wire.payloads import to_json

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.clerk import Request
    from arcp_trio.runtime.session.session import Session

log = logging.getLogger(__name__)


class Answering:
    """Takes the answers that come in one session."""

    def __init__(self, core: Core, jobs: Jobs, session: Session) -> None:
        self._core = core
        self._jobs = jobs
        self._session = session

    async def answer(self, request: Request, message: AnswerQuestion) -> None:
        """Settle an open question, and promise the client that its answer is the one.

        Raises:
            JobNotFound: there is no such question that is open, or the principal may not know of
                the job; the same words.
            PermissionDenied: the principal only observes the job.
            InvalidRequest: the answer is not what was asked for.
            InternalError: it is too large, or the question cannot be read from the store, yet.
        """
        policy, principal = self._core.policy, self._session.principal
        job = self._jobs.live.get(message.job_id)
        if job is None or not policy.may_observe(principal, job.principal):
            # The same work for a job of somebody else as for no job at all.
            await self._session.reads.owner(message.job_id)
            raise _no_question()
        if not await job.memory.is_known():
            raise store_trouble()
        question = job.questions.find(message.question_id)
        if question is None:
            raise _no_question()
        if not policy.may_answer(principal, job.principal):
            raise PermissionDenied("only the job's own principal and approvers may answer")
        question.settle(message, principal)
        settled = {"question_id": message.question_id, "by": principal}
        log.info("question answered", extra=job.facts | settled)
        said = QuestionAnswered(
            request_id=request.id, job_id=job.id, question_id=message.question_id
        )
        # The answer is in the store's queue, so it is stored before this promise can be sent.
        self._session.tell(Promise(frame(said.type, to_json(said), job_id=job.id)))


def _no_question() -> JobNotFound:
    return JobNotFound("there is no such question, or it is open no longer")
