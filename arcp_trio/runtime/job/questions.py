"""Questions of a job to people that wait for their answer.

A question is settled once, in one step: by the first valid answer, by its time's end, or because
its agent waits no longer. There are two kinds: what an agent asks with `job.ask` (`asking.py`), and
approvals of what the lease allows on that condition (`approvals.py`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.runtime.job.events import add_event
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.store.shared_writes import KeepQuestions
from arcp_trio.wire.errors import InternalError, InvalidRequest
from arcp_trio.wire.ids import token_digest
from arcp_trio.wire.json import JsonLike, JsonObject, dumps
from arcp_trio.wire.payloads import to_json
from arcp_trio.wire.questions import QUESTION, QuestionBody
from arcp_trio.wire.timestamps import parse_rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.job.commands import AnswerTo
    from arcp_trio.runtime.job.job import Job

MOST_SUBJECTS: Final = 10_000
"""Questions of a job whose ids are known to be used."""

ANSWER_PATH: Final = "$.payload.answer"
"""Where the answer stands in its message."""


@attrs.define(eq=False, kw_only=True)
class OpenQuestion(ABC):
    """A question of a job that waits for its answer."""

    job: Job
    body: QuestionBody
    deadline: float
    """The time until which it can be answered, on Trio's clock."""
    answered: trio.Event = attrs.field(factory=trio.Event)
    size: int = attrs.field(init=False)
    """Bytes of the question."""

    def __attrs_post_init__(self) -> None:
        self.size = len(dumps(to_json(self.body)))

    @property
    def is_open(self) -> bool:
        """Whether it can be answered now."""
        # An agent may be slow to notice the end of its time, or of its job.
        in_time = trio.current_time() < self.deadline
        return in_time and self.job.outcome is None and not self.answered.is_set()

    @property
    def subject(self) -> str:
        """What is asked: two questions with the same are one to those who answer."""
        body = self.body
        return dumps([body.prompt, body.options, to_json(body).get("schema")]).decode()

    def announce(self) -> None:
        """Tell all that watch the job of the question."""
        add_event(self.job, QUESTION, to_json(self.body))

    async def wait(self) -> None:
        """Wait for the answer, or until it is too late for one."""
        with trio.move_on_at(self.deadline):
            await self.answered.wait()

    @abstractmethod
    def settle(self, said: AnswerTo) -> None:
        """Take an answer, in one step.

        Raises:
            InvalidRequest: it is not what was asked for; the question stays open.
            InternalError: it is too large; the question stays open.
        """


def deadline_of(job: Job, body: QuestionBody) -> float:
    """Return the end of a question's time on Trio's clock, which tells nothing of time before."""
    if body.expires_at is None:
        return math.inf
    return trio.current_time() + parse_rfc3339(body.expires_at) - job.core.clock.now()


class Questions:
    """The open questions of one job."""

    def __init__(self) -> None:
        self._open: dict[str, OpenQuestion] = {}
        self._subjects: dict[bytes, bytes] = {}
        """Digests of what was asked, by those of the ids under which it was."""
        self.decided: dict[str, JsonObject] = {}
        """What people have decided on calls that have no result yet."""

    def waits(self, call_id: JsonLike) -> bool:
        """Return whether a tool call waits for the answer to a question."""
        return isinstance(call_id, str) and call_id in self._open

    def ask(self, question: OpenQuestion) -> None:
        """Ask: from here on the question can be answered.

        Raises:
            InternalError: too much is asked at once.
        """
        job, limits = question.job, question.job.core.limits
        if self.is_asked(question.body.question_id):
            raise InternalError(
                "two tasks ask for the same at once: order them, or name their calls apart"
            )
        known, subject = token_digest(question.body.question_id), token_digest(question.subject)
        if self._subjects.get(known, subject) != subject:  # who answers may still see the other one
            raise InvalidRequest("people were asked something else under this id: take another id")
        helps = "wait for an answer first"
        if len(self._open) >= limits.questions_per_job:
            most = limits.questions_per_job
            raise job.core.metrics.refused(limit_hit("questions_per_job", most, what_helps=helps))
        size = question.size + sum(each.size for each in self._open.values())
        if size > limits.question_bytes:
            most = limits.question_bytes
            raise job.core.metrics.refused(limit_hit("question_bytes", most, what_helps=helps))
        question.announce()
        self._subjects[known] = subject
        if len(self._subjects) > MOST_SUBJECTS:
            del self._subjects[next(iter(self._subjects))]
        self.reopen(question)

    def reopen(self, question: OpenQuestion) -> None:
        """Let a question that was asked before be answered."""
        self._open[question.body.question_id] = question
        self.show(question.job)

    def find(self, question_id: str) -> OpenQuestion | None:
        """Return a question that can be answered now; None if there is no such question."""
        question = self._open.get(question_id)
        return question if question is not None and question.is_open else None

    def is_asked(self, question_id: str) -> bool:
        """Return whether there is a question with this id that its agent may wait for."""
        return question_id in self._open

    def asked_before(self, question_id: str) -> OpenQuestion:
        """Return a question that an earlier run has asked and nobody has answered."""
        return self._open[question_id]

    def close(self, question: OpenQuestion) -> None:
        """Stop listing a question that is settled or given up."""
        if self._open.pop(question.body.question_id, None) is not None:
            self.show(question.job)

    @property
    def are_open(self) -> bool:
        """Whether the job waits for people."""
        return any(each.is_open for each in self._open.values())

    def show(self, job: Job) -> None:
        """Have the job counted as one that waits, or not, and other nodes list what is open."""
        job.jobs.count_waiting(job)
        if job.core.store.shared is not None:
            bodies = [to_json(body) for body in self.listed()]
            job.core.store.put(KeepQuestions(job.id, dumps(bodies) if bodies else None))

    def listed(self) -> list[QuestionBody]:
        """Return the questions that can be answered now, in the order in which they were asked."""
        return [each.body for each in self._open.values() if each.is_open]
