"""How an agent asks people: what it asks is checked, asked once, and waited for.

A question is a tool call, of `human.ask`, with an event of its own beside it. A durable job
remembers what it has asked and what it was answered, so that a question outlasts the runtime, and
can be answered before its agent comes to it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.runtime.job.durable.memory import done_value
from arcp_trio.runtime.job.durable.steps import begin
from arcp_trio.runtime.job.events import give_way
from arcp_trio.runtime.job.questions import ANSWER_PATH, OpenQuestion, deadline_of
from arcp_trio.runtime.job.tools import OpenCall
from arcp_trio.wire.errors import InvalidRequest, Unanswered, clip
from arcp_trio.wire.events import InvalidEvent
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonLike, JsonObject, JsonValue, dumps, is_object, loads, object_in
from arcp_trio.wire.json_schema import JsonSchema
from arcp_trio.wire.payloads import read, to_json
from arcp_trio.wire.questions import HUMAN_ASK, QuestionBody
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.job.commands import AnswerTo
    from arcp_trio.runtime.job.job import Job

REMEMBERED: Final = "question"
"""The kind of memos of questions."""


@attrs.define(eq=False, kw_only=True)
class HumanQuestion(OpenQuestion):
    """A question that an agent asks people, whose answer is a tool's result."""

    key: str
    """The key under which the job remembers it."""
    call: OpenCall
    schema: JsonSchema | None
    done: JsonObject = attrs.field(factory=dict[str, "JsonValue"])
    """The answer and who gave it, if anybody has."""

    @classmethod
    def of(cls, job: Job, key: str, body: QuestionBody, deadline: float) -> HumanQuestion:
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
            schema=None if body.schema is None else JsonSchema(body.schema),
        )

    def settle(self, said: AnswerTo) -> None:
        """Take an answer, and tell it to all that watch the job, in one step.

        Raises:
            InvalidRequest: it is not what was asked for; the question stays open.
            InternalError: it is too large; the question stays open.
        """
        if said.scope is not None or said.reason is not None:
            raise InvalidRequest("only the answer to an approval has a scope or a reason")
        self._check(said.answer)
        done: JsonObject = {"answer": said.answer, "by": said.by}
        value = self._value(done)
        self.job.memory.refuse_if_too_large(self.key, value)
        try:
            self.call.finish(done, to_remember=True)
        except InvalidEvent as error:
            raise InvalidRequest(f"the answer cannot be passed on: {error}") from None
        self.job.memory.settle(self.key, self.job.journal.length, value)
        self.done = done
        self.answered.set()

    def ask(self) -> None:
        """Ask, and remember that: from here on the question can be answered.

        Raises:
            InternalError: too much is asked at once.
        """
        self.job.questions.ask(self)
        self.job.memory.change(self.key, self.job.journal.length, question=to_json(self.body))

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


def reopen_questions(job: Job) -> None:
    """Reopen the questions that earlier runs have asked and nobody has answered."""
    for key, state in job.memory.unfinished(REMEMBERED):
        if "question" in state:
            body = read(QuestionBody, object_in(state["question"]))
            job.questions.reopen(HumanQuestion.of(job, key, body, deadline_of(job, body)))


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
        asked_before = job.questions.asked_before(question_id)
        assert isinstance(asked_before, HumanQuestion), "the id is that of a question"
        question = asked_before
    else:
        question = _question(job, key, question_id, prompt, options, schema, to, expires_in)
    _announce(question, state)
    try:
        if "question" not in state:
            await question.call.check(HUMAN_ASK)
            question.ask()
            await give_way(job)
        job.memory.note_progress()
        await question.wait()
    except BaseException as error:
        # A question that is answered is settled, even if its agent is cancelled before it knows.
        if not (question.answered.is_set() or job.suspended):
            question.give_up(error)
        raise
    else:
        if not (question.answered.is_set() or job.suspended):
            question.time_out()
    finally:
        if not job.suspended:
            job.questions.close(question)
    with job.over.ends_waits():
        await job.memory.kept()
    return "question" in state, question.done


def _announce(question: HumanQuestion, state: JsonObject) -> None:
    """Emit the tool call, unless an earlier run, which has left `state`, has."""
    job, args = question.job, to_json(question.body)
    question_id = args.pop("question_id")
    if "call_id" in state:
        question.call.go_on(HUMAN_ASK)
    else:
        question.call.announce(HUMAN_ASK, args)
        job.memory.change(question.key, job.journal.length, call_id=question_id)


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
) -> HumanQuestion:
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
    return HumanQuestion.of(job, key, body, deadline)


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
