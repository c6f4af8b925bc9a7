"""What the job of another runtime asks people, asked in the name of the job that it works for."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeAlias

from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.json import JsonObject
from arcp_trio.wire.questions import HUMAN_ASK, QUESTION
from arcp_trio.wire.timestamps import parse_rfc3339

if TYPE_CHECKING:
    from arcp_trio.client.questions import Question
    from arcp_trio.runtime.job.context import JobContext

log = logging.getLogger(__name__)

_Events: TypeAlias = list[tuple[str, JsonObject]]


class ForwardedQuestions:
    """Asks in a job's name, and keeps the other job's events of its questions from being told."""

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._calls: dict[str, JsonObject] = {}
        """Bodies of calls of `human.ask` of which it is not known whether people are asked."""
        self._asked: set[str] = set()

    async def ask(self, question: Question) -> None:
        """Ask people, and pass on their answer; the other runtime minds the end of the time."""
        left = None
        if question.expires_at is not None:
            left = max(parse_rfc3339(question.expires_at) - time.time(), 0.001)
        try:
            answer = await self._job.ask(
                question.prompt,
                question.options,
                question.schema,
                question.to,
                expires_in=left,
                name=question.question_id,
            )
            await question.answer(answer)
        except ArcpError as error:  # one of them is over, or this one is refused
            facts = {"job_id": self._job.id, "code": error.code, "error": error.message}
            log.info("question not answered", extra=facts)

    def instead_of(self, kind: str, body: JsonObject) -> _Events:
        """Return the events to tell in place of one of the other job's."""
        call_id = str(body.get("call_id"))
        if kind == "tool_call" and body.get("tool") == HUMAN_ASK:
            self._calls[call_id] = body
            return []
        if kind == QUESTION:
            question_id = str(body.get("question_id"))
            self._calls.pop(question_id, None)
            self._asked.add(question_id)
            return []
        if kind == "tool_result" and call_id in self._asked:
            self._asked.discard(call_id)
            return []
        if kind == "tool_result" and call_id in self._calls:  # the call was refused
            return [("tool_call", self._calls.pop(call_id)), (kind, body)]
        return [(kind, body)]
