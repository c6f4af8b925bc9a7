"""How an agent asks people: what it asks is checked, asked once, and waited for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.job.durable.steps import begin
from arcp_trio.runtime.job.events import give_way
from arcp_trio.runtime.job.questions import REMEMBERED, OpenQuestion
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonLike, JsonObject, dumps, is_object, loads, object_in
from arcp_trio.wire.payloads import to_json
from arcp_trio.wire.questions import HUMAN_ASK, QuestionBody
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job


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
    _announce(question, state)
    try:
        if "question" not in state:
            await question.call.check(HUMAN_ASK)
            job.questions.ask(question)
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
    await job.memory.kept()
    return "question" in state, question.done


def _announce(question: OpenQuestion, state: JsonObject) -> None:
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
