"""Questions of a job to people that wait for their answer.

A question is a tool call, of `human.ask`, with an event of its own beside it. It is settled once,
in one step: by the first valid answer, by its time's end, or because its agent waits no longer. A
durable job remembers what it has asked and what it was answered, so that a question outlasts the
runtime, and can be answered before its agent comes to it again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.runtime.job.durable.memory import done_value
from arcp_trio.runtime.job.events import add_event
from arcp_trio.runtime.job.tools import OpenCall
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.wire.answer_schema import AnswerSchema
from arcp_trio.wire.errors import InvalidRequest, Unanswered, clip
from arcp_trio.wire.events import InvalidEvent
from arcp_trio.wire.json import JsonObject, JsonValue, dumps, object_in
from arcp_trio.wire.payloads import read, to_json
from arcp_trio.wire.questions import QUESTION, QuestionBody
from arcp_trio.wire.timestamps import parse_rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

REMEMBERED: Final = "question"
"""The kind of memos of questions."""
ANSWER_PATH: Final = "$.payload.answer"
"""Where the answer stands in its message."""


@attrs.define(eq=False, kw_only=True)
class OpenQuestion:
    """A question of a job that waits for its answer."""

    job: Job
    key: str
    """The key under which the job remembers it."""
    body: QuestionBody
    deadline: float
    """The time until which it can be answered, on Trio's clock."""
    call: OpenCall
    schema: AnswerSchema | None
    size: int
    """Bytes of the question."""
    answered: trio.Event = attrs.field(factory=trio.Event)
    done: JsonObject = attrs.field(factory=dict[str, "JsonValue"])
    """The answer and who gave it, if anybody has."""

    @classmethod
    def of(cls, job: Job, key: str, body: QuestionBody, deadline: float) -> OpenQuestion:
        """Return the question with this body.

        Raises:
            ValueError: its schema is not one that answers are held to.
        """
        return cls(
            job=job,
            key=key,
            body=body,
            deadline=deadline,
            call=OpenCall(job, body.question_id),
            schema=None if body.schema is None else AnswerSchema(body.schema),
            size=len(dumps(to_json(body))),
        )

    @property
    def is_open(self) -> bool:
        """Whether it can be answered now."""
        # An agent may be slow to notice the end of its time, or of its job.
        in_time = trio.current_time() < self.deadline
        return in_time and self.job.outcome is None and not self.answered.is_set()

    async def wait(self) -> None:
        """Wait for the answer, or until it is too late for one."""
        with trio.move_on_at(self.deadline):
            await self.answered.wait()

    def settle(self, answer: JsonValue, by: str) -> None:
        """Take an answer, and tell it to all that watch the job, in one step.

        Raises:
            InvalidRequest: it is not what was asked for; the question stays open.
            InternalError: it is too large; the question stays open.
        """
        self._check(answer)
        done: JsonObject = {"answer": answer, "by": by}
        value = self._value(done)
        self.job.memory.refuse_if_too_large(self.key, value)
        try:
            self.call.finish(done, to_remember=True)
        except InvalidEvent as error:
            raise InvalidRequest(f"the answer cannot be passed on: {error}") from None
        self.job.memory.settle(self.key, self.job.journal.length, value)
        self.done = done
        self.answered.set()

    def time_out(self) -> None:
        """Tell that nobody has answered in time, and remember it."""
        self.call.fail(Unanswered.to(self.body.prompt))
        if self.job.outcome is None:
            self.job.memory.settle(self.key, self.job.journal.length, self._value({}))

    def give_up(self, error: BaseException) -> None:
        """Tell why the question is asked no longer; a later run asks another one."""
        self.call.fail(error)
        if self.job.outcome is None:
            self.job.memory.reset(self.key, self.job.journal.length)

    def _value(self, done: JsonObject) -> bytes:
        """Return what the job remembers of the question once it is settled."""
        return done_value(dumps(done), {"call_id": self.body.question_id})

    def _check(self, answer: JsonValue) -> None:
        problem: str | None = None
        if self.body.options is not None:
            if answer not in self.body.options:
                options = clip(", ".join(map(repr, self.body.options)))
                problem = f"expected one of {options} @ {ANSWER_PATH}"
        elif self.schema is not None:
            problem = self.schema.problem(answer, ANSWER_PATH)
        if problem is not None:
            raise InvalidRequest(problem)


class Questions:
    """The open questions of one job."""

    def __init__(self) -> None:
        self._open: dict[str, OpenQuestion] = {}

    def ask(self, question: OpenQuestion) -> None:
        """Ask: from here on the question can be answered.

        Raises:
            InternalError: too much is asked at once.
        """
        job, limits = question.job, question.job.core.limits
        helps = "wait for an answer first"
        if len(self._open) >= limits.questions_per_job:
            most = limits.questions_per_job
            raise job.core.metrics.refused(limit_hit("questions_per_job", most, what_helps=helps))
        size = question.size + sum(each.size for each in self._open.values())
        if size > limits.question_bytes:
            most = limits.question_bytes
            raise job.core.metrics.refused(limit_hit("question_bytes", most, what_helps=helps))
        body = to_json(question.body)
        add_event(job, QUESTION, body)
        job.memory.change(question.key, job.journal.length, question=body)
        self._open[question.body.question_id] = question

    def restore(self, job: Job) -> None:
        """Reopen the questions that earlier runs have asked and nobody has answered."""
        for key, state in job.memory.unfinished(REMEMBERED):
            if "question" in state:
                body = read(QuestionBody, object_in(state["question"]))
                question = OpenQuestion.of(job, key, body, deadline_of(job, body))
                self._open[body.question_id] = question

    def find(self, question_id: str) -> OpenQuestion | None:
        """Return a question that can be answered now; None if there is no such question."""
        question = self._open.get(question_id)
        return question if question is not None and question.is_open else None

    def restored(self, question_id: str) -> OpenQuestion:
        """Return a question that an earlier run has asked and nobody has answered."""
        return self._open[question_id]

    def close(self, question: OpenQuestion) -> None:
        """Stop listing a question that is settled or given up."""
        self._open.pop(question.body.question_id, None)

    def listed(self) -> list[QuestionBody]:
        """Return the questions that can be answered now, in the order in which they were asked."""
        return [each.body for each in self._open.values() if each.is_open]


def deadline_of(job: Job, body: QuestionBody) -> float:
    """Return the end of a question's time on Trio's clock, which tells nothing of time before."""
    if body.expires_at is None:
        return math.inf
    return trio.current_time() + parse_rfc3339(body.expires_at) - job.core.clock.now()
