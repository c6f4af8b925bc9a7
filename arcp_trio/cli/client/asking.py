"""Questions of a job that is shown: asked on the terminal, or printed without one."""

from __future__ import annotations

from typing import Final

import trio

from arcp_trio import InvalidRequest, Question
from arcp_trio.cli.client.approving import (
    NO_CHOICE,
    PROMPT,
    approval_lines,
    choice_lines,
    decide,
    for_job,
)
from arcp_trio.cli.client.screen import Screen
from arcp_trio.cli.errors import PROGRAM, plainly
from arcp_trio.cli.text import exact_line, safe_line, safe_lines
from arcp_trio.wire import json
from arcp_trio.wire.errors import ArcpError, JobNotFound
from arcp_trio.wire.json import JsonValue, dumps
from arcp_trio.wire.questions import ALLOW, APPROVAL, DENY

_DECISIONS: Final = {"yes": ALLOW, "y": ALLOW, "no": DENY, "n": DENY}

_SETTLE_SECONDS: Final = 0.1
"""How long a question waits to be shown: what came before may bring its answer with it."""


class Asking:
    """Asks the person at the terminal what jobs ask; the client calls `ask` with each question."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def ask(self, question: Question) -> None:
        """Show a question and, on a terminal, pass on what is typed until it is a valid answer."""
        await trio.sleep(_SETTLE_SECONDS)
        lines, prompt = question_lines(question), "answer: "
        if not self._screen.can_ask:
            await self._screen.add([*lines, *_how_to_answer(question)])
            return
        if question.kind == APPROVAL:
            lines, prompt = [*lines, *choice_lines(question)], PROMPT
        while (typed := await self._screen.prompt(lines, prompt)) is not None:
            if typed and await self._is_settled(question, typed):
                return
        await self._screen.add(_how_to_answer(question))

    async def _is_settled(self, question: Question, typed: str) -> bool:
        """Answer, and return whether there is nothing more to ask."""
        try:
            if question.kind == APPROVAL:
                if not await decide(question, typed):
                    await self._screen.add([NO_CHOICE])
                    return False
                return True
            await question.answer(typed_answer(question, _chosen(question, typed)))
        except InvalidRequest as error:
            fault = plainly(error.message, within="$.payload.answer")
            await self._screen.add([safe_line(f"this is not an answer: {fault}")])
            return False
        except JobNotFound:
            await self._screen.add(["the question is over"])
        except ArcpError as error:
            await self._screen.add([safe_line(f"not answered: {error.code}: {error.message}")])
        return True


def question_lines(question: Question) -> list[str]:
    """Return the lines that tell what is asked, safe for a terminal."""
    if question.kind == APPROVAL:
        return approval_lines(question)
    meant = "" if question.to is None else f" for {safe_line(question.to)}"
    first, *others = safe_lines(question.prompt)
    lines = [f"question{meant}: {first}", *(f"  {line}" for line in others)]
    for number, option in enumerate(question.options or (), 1):
        lines.append(f"  {number}  {safe_line(option)}")
    if question.schema is not None:
        lines.append(f"  the answer is {safe_line(dumps(question.schema).decode())}")
    if question.expires_at is not None:
        lines.append(f"  open until {safe_line(question.expires_at)}")
    return lines


def typed_answer(question: Question, typed: str) -> JsonValue:
    """Return what a typed text stands for: itself if the answer is a text, else JSON if it is.

    For an approval, yes and no will do.
    """
    if question.kind == APPROVAL:
        return _DECISIONS.get(typed.lower(), typed)
    if question.wants_text:
        return typed
    try:
        return json.loads(typed)
    except InvalidRequest:
        return typed


def _chosen(question: Question, typed: str) -> str:
    """Return the option that a typed number stands for, or else what was typed."""
    options = question.options or ()
    if typed in options or not typed.isdecimal() or not 0 < int(typed) <= len(options):
        return typed
    return options[int(typed) - 1]


def _how_to_answer(question: Question) -> list[str]:
    command = f"{PROGRAM} answer {safe_line(f'{question.job_id} {question.question_id}')}"
    if question.kind != APPROVAL:
        return [f"{command} VALUE answers it"]
    scope = f"  --scope job allows for this job: {exact_line(for_job(question))}"
    return [scope, f"{command} yes|no answers it"]
