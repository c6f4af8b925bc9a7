"""What a job is told to do, as values; it is decided where the job runs, each in one step."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.notices import store_trouble
from arcp_trio.store.records import Status
from arcp_trio.store.writes import CancelJob
from arcp_trio.wire.errors import JobNotFound, PermissionDenied
from arcp_trio.wire.json import JsonValue

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

log = logging.getLogger(__name__)


class EndJob(msgspec.Struct, frozen=True, tag="end"):
    """A client cancels a job, or stops it; that it may is known (§7.4)."""

    job_id: str
    reason: str | None
    stopped_by: str | None = None
    """The principal that stops the job; None for a `job.cancel`."""


class AnswerTo(msgspec.Struct, frozen=True, tag="answer"):
    """A person answers a question of a job; that the principal may see the job is known."""

    job_id: str
    question_id: str
    answer: JsonValue
    scope: str | None
    reason: str | None
    by: str
    """The principal that answers."""


class Reveal(msgspec.Struct, frozen=True, tag="reveal"):
    """Another node has a session whose client may have the values of the job's credentials."""

    job_id: str
    session_id: str
    public_key: bytes
    """The public key of the node that asks, which stands in its row, too."""


JobCommand: TypeAlias = EndJob | AnswerTo | Reveal


class Sealed(msgspec.Struct, frozen=True):
    """The credentials of a job, each sealed to the node that has asked for them."""

    node: int
    """The node of the job."""
    credentials: dict[str, bytes]
    """By id."""


class Obeyed(msgspec.Struct, frozen=True):
    """What came of a command."""

    again: bool = False
    """The same was promised before."""
    ended: Status | None = None
    """Nothing came of it: the job had ended, or was about to end, in this way."""
    sealed: Sealed | None = None
    """What a `Reveal` has asked for."""


def end_job(job: Job, command: EndJob) -> Obeyed:
    """Decide that a job ends cancelled, unless its end is decided, and wind it up."""
    end = outcome.cancelled(command.reason, stopped_by=command.stopped_by)
    first = job.decide(end)
    ends = job.outcome
    assert ends is not None
    if not first and (job.ended or ends.status is not Status.CANCELLED):
        return Obeyed(ended=ends.status)
    if first:
        # In the store's queue before any promise: a crash must not break the promise.
        job.core.store.put(CancelJob(job.id, command.reason or "", command.stopped_by))
    job.wind_up()
    return Obeyed(again=not first)


async def answer_question(job: Job, command: AnswerTo) -> Obeyed:
    """Settle an open question; the answer is in the store's queue then.

    Raises:
        JobNotFound: there is no such question that is open.
        PermissionDenied: the principal only observes the job.
        InvalidRequest: the answer is not what was asked for.
        InternalError: it is too large, or the question cannot be read from the store, yet.
    """
    if not await job.memory.is_known():
        raise store_trouble(job.core.store)
    question = job.questions.find(command.question_id)
    if question is None:
        raise no_question()
    if not job.core.policy.may_answer(command.by, job.principal):
        raise PermissionDenied("only the job's own principal and approvers may answer")
    question.settle(command)
    job.questions.show(job)
    settled = {"question_id": command.question_id, "by": command.by}
    log.info("question answered", extra=job.facts | settled)
    return Obeyed()


def no_question() -> JobNotFound:
    """Return the error for a question that nobody can answer, or that the principal cannot see."""
    return JobNotFound("there is no such question, or it is open no longer")
