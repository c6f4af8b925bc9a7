"""Questions of a job to people: what is asked, and which questions wait for their answer.

A question is a tool call, of `human.ask`, with an event of its own beside it. It is settled once,
in one step: by the first valid answer, by its time's end, or because its agent waits no longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.runtime.job.events import add_event, give_way
from arcp_trio.runtime.job.tools import OpenCall
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.wire.answer_schema import AnswerSchema
from arcp_trio.wire.errors import InvalidRequest, Unanswered, clip
from arcp_trio.wire.events import InvalidEvent
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonLike, JsonValue, dumps, is_object, loads
from arcp_trio.wire.payloads import to_json
from arcp_trio.wire.questions import HUMAN_ASK, QUESTION, QuestionBody
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

ANSWER_PATH: Final = "$.payload.answer"
"""Where the answer stands in its message."""


@attrs.define(eq=False, kw_only=True)
class OpenQuestion:
    """A question of a job that waits for its answer."""

    body: QuestionBody
    deadline: float
    """The time until which it can be answered, on Trio's clock."""
    schema: AnswerSchema | None
    call: OpenCall
    size: int
    """Bytes of the question."""
    answered: trio.Event = attrs.field(factory=trio.Event)
    answer: JsonValue = None

    async def wait(self) -> None:
        """Wait for the answer.

        Raises:
            Unanswered: nobody has answered in time.
        """
        with trio.move_on_at(self.deadline):
            await self.answered.wait()
        if not self.answered.is_set():
            raise Unanswered("nobody has answered the question in time")

    def settle(self, answer: JsonValue, by: str) -> None:
        """Take an answer, and tell it to all that watch the job, in one step.

        Raises:
            InvalidRequest: it is not what was asked for; the question stays open.
            InternalError: it is too large; the question stays open.
        """
        self._check(answer)
        try:
            self.call.finish({"answer": answer, "by": by})
        except InvalidEvent as error:
            raise InvalidRequest(f"the answer cannot be passed on: {error}") from None
        self.answer = answer
        self.answered.set()

    def _check(self, answer: JsonValue) -> None:
        problem: str | None = None
        if self.body.options is not None:
            if answer not in self.body.options:
                problem = f"expected one of {self._options} @ {ANSWER_PATH}"
        elif self.schema is not None:
            problem = self.schema.problem(answer, ANSWER_PATH)
        if problem is not None:
            raise InvalidRequest(problem)

    @property
    def _options(self) -> str:
        return clip(", ".join(map(repr, self.body.options or ())))


class Questions:
    """The open questions of one job."""

    def __init__(self) -> None:
        self._open: dict[str, OpenQuestion] = {}

    def open(self, job: Job, question: OpenQuestion) -> None:
        """Ask: from here on the question can be answered.

        Raises:
            InternalError: too much is asked at once.
        """
        limits = job.core.limits
        helps = "wait for an answer first"
        if len(self._open) >= limits.questions_per_job:
            most = limits.questions_per_job
            raise limit_hit("questions_per_job", most, what_helps=helps)
        size = question.size + sum(each.size for each in self._open.values())
        if size > limits.question_bytes:
            raise limit_hit("question_bytes", limits.question_bytes, what_helps="ask for less")
        add_event(job, QUESTION, to_json(question.body))
        self._open[question.body.question_id] = question

    def find(self, job: Job, question_id: str) -> OpenQuestion | None:
        """Return a question that can be answered now; None if there is no such question."""
        question = self._open.get(question_id)
        return question if question is not None and self._is_open(job, question) else None

    def close(self, question: OpenQuestion) -> None:
        """Stop listing a question that is settled or given up."""
        self._open.pop(question.body.question_id, None)

    def listed(self, job: Job) -> list[QuestionBody]:
        """Return the questions that can be answered now, in the order in which they were asked."""
        return [each.body for each in self._open.values() if self._is_open(job, each)]

    def _is_open(self, job: Job, question: OpenQuestion) -> bool:
        # An agent may be slow to notice the end of its time, or of its job.
        in_time = trio.current_time() < question.deadline
        return in_time and job.outcome is None and not question.answered.is_set()


async def ask(
    job: Job,
    prompt: str,
    options: Sequence[str] | None,
    schema: Mapping[str, JsonLike] | None,
    to: str | None,
    expires_in: float | None,
) -> JsonValue:
    """Ask people, and return the first valid answer.

    Raises:
        Unanswered: nobody has answered in time.
        ArcpError: the lease does not allow it, too much is asked at once, or the job is ending.
        ValueError, TypeError: an argument is invalid; nothing was asked.
    """
    question = _question(job, prompt, options, schema, to, expires_in)
    args = to_json(question.body)
    del args["question_id"]
    job.refuse_if_ending()
    question.call.announce(HUMAN_ASK, args)
    try:
        await question.call.check(HUMAN_ASK)
        job.questions.open(job, question)
        await give_way(job)
        await question.wait()
    except BaseException as error:
        # A question that is answered is settled, even if its agent is cancelled before it knows.
        if not question.answered.is_set():
            question.call.fail(error)
        raise
    finally:
        job.questions.close(question)
    return question.answer


# -- what an agent asks


def _question(
    job: Job,
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
        question_id=new_id("call_"),
        prompt=prompt,
        options=None if options is None else _checked_options(options),
        schema=read,
        to=to,
        expires_at=None if expires_in is None else rfc3339(job.core.clock.now() + expires_in),
    )
    return OpenQuestion(
        body=body,
        deadline=math.inf if expires_in is None else trio.current_time() + expires_in,
        schema=None if read is None else AnswerSchema(read),
        call=OpenCall(job, body.question_id),
        size=len(dumps(to_json(body))),
    )


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
