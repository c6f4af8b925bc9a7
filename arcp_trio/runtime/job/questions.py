"""Questions of a job to people: what is asked, and which questions wait for their answer.

A question is a tool call, of `human.ask`, with an event of its own beside it. It is settled once,
in one step: by the first valid answer, by its time's end, or because its agent waits no longer. A
durable job remembers what it has asked and what it was answered, so that a question outlasts the
runtime, and can be answered before its agent comes to it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.runtime.job.durable.memory import done_value
from arcp_trio.runtime.job.durable.steps import begin
from arcp_trio.runtime.job.events import add_event, give_way
from arcp_trio.runtime.job.tools import OpenCall
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.wire.answer_schema import AnswerSchema
from arcp_trio.wire.errors import InvalidRequest, Unanswered, clip
from arcp_trio.wire.events import InvalidEvent
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonLike, JsonObject, JsonValue, dumps, is_object, loads, object_in
from arcp_trio.wire.payloads import read, to_json
from arcp_trio.wire.questions import HUMAN_ASK, QUESTION, QuestionBody
from arcp_trio.wire.timestamps import parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

REMEMBERED: Final = "question"
"""The kind of memos of questions."""
UNANSWERED: Final = "nobody has answered the question in time"
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
        self.call.fail(Unanswered(UNANSWERED))
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
                question = OpenQuestion.of(job, key, body, _deadline(job, body))
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


def _deadline(job: Job, body: QuestionBody) -> float:
    """Return the end of a question's time on Trio's clock, which tells nothing of time before."""
    if body.expires_at is None:
        return math.inf
    return trio.current_time() + parse_rfc3339(body.expires_at) - job.core.clock.now()


async def ask(
    job: Job,
    key: str,
    prompt: str,
    options: Sequence[str] | None,
    schema: Mapping[str, JsonLike] | None,
    to: str | None,
    expires_in: float | None,
) -> tuple[bool, JsonObject]:
    """Ask people, and wait for the first valid answer or the end of the question's time.

    A durable job does neither if an earlier run has come to an answer, or to the end.

    Returns:
        Whether an earlier run had asked; and the answer with who gave it, empty without one.

    Raises:
        ArcpError: the lease does not allow it, too much is asked at once, or the job is ending.
        ValueError, TypeError: an argument is invalid, and nothing was asked; or the key comes
            twice.
    """
    state = await begin(job, key, REMEMBERED) or {}
    if "done" in state:
        return True, object_in(state["done"])
    question_id = str(state.get("call_id", new_id("call_")))
    if "question" in state:
        question = job.questions.restored(question_id)
    else:
        question = _question(job, key, question_id, prompt, options, schema, to, expires_in)
    try:
        await _ask(question, state)
        await question.wait()
    except BaseException as error:
        # A question that is answered is settled, even if its agent is cancelled before it knows.
        if not (question.answered.is_set() or job.suspended):
            question.give_up(error)
        raise
    else:
        if not question.answered.is_set():
            question.time_out()
    finally:
        if not job.suspended:
            job.questions.close(question)
    await job.memory.kept()
    return "question" in state, question.done


async def _ask(question: OpenQuestion, state: JsonObject) -> None:
    """Ask a question, as far as an earlier run has not: that has left the `state`."""
    job, args = question.job, to_json(question.body)
    question_id = args.pop("question_id")
    if "call_id" in state:
        question.call.go_on(HUMAN_ASK)
    else:
        question.call.announce(HUMAN_ASK, args)
        job.memory.change(question.key, job.journal.length, call_id=question_id)
    if "question" in state:
        job.memory.note_progress()
    else:
        await question.call.check(HUMAN_ASK)
        job.questions.ask(question)
        await give_way(job)


# -- what an agent asks


def _question(
    job: Job,
    key: str,
    question_id: str,
    prompt: str,
    options: Sequence[str] | None,
    schema: Mapping[str, JsonLike] | None,
    to: str | None,
    expires_in: float | None,
) -> OpenQuestion:
    _check_text(prompt, "prompt")
    if to is not None:
        _check_text(to, "to")
    if options is not None and schema is not None:
        raise ValueError("a question has options or a schema, not both")
    if expires_in is not None and not 0 < expires_in < math.inf:  # refuses nan, too
        raise ValueError("expires_in must be a number of seconds above 0")
    read = None if schema is None else loads(dumps(schema))
    if read is not None and not is_object(read):
        raise TypeError(f"schema must be an object, not {type(schema).__name__}")
    body = QuestionBody(
        question_id=question_id,
        prompt=prompt,
        options=None if options is None else _checked_options(options),
        schema=read,
        to=to,
        expires_at=None if expires_in is None else rfc3339(job.core.clock.now() + expires_in),
    )
    deadline = math.inf if expires_in is None else trio.current_time() + expires_in
    return OpenQuestion.of(job, key, body, deadline)


def _check_text(text: object, name: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a text, not {type(text).__name__}")
    if not text:
        raise ValueError(f"{name} must not be empty")


def _checked_options(options: Sequence[str]) -> list[str]:
    if isinstance(options, str):
        raise TypeError("options must be a list of texts, not one text")
    checked = list(options)
    for option in checked:
        _check_text(option, "each of options")
    if not checked or len(set(checked)) != len(checked):
        raise ValueError("options must be texts that differ, at least one")
    return checked
