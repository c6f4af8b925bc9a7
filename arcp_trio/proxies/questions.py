"""What the job of another runtime asks people, asked in the name of the job that it works for."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import trio

from arcp_trio.wire.errors import ApprovalNeeded, ArcpError, PermissionDenied
from arcp_trio.wire.json import JsonObject, JsonValue, object_in, text_in
from arcp_trio.wire.payloads import to_json
from arcp_trio.wire.questions import ALLOW, APPROVAL, APPROVED, DENY, HUMAN_ASK, QUESTION
from arcp_trio.wire.timestamps import parse_rfc3339

if TYPE_CHECKING:
    from arcp_trio.client.questions import Question
    from arcp_trio.runtime.job.context import JobContext

log = logging.getLogger(__name__)

MOST_HELD: Final = 16
"""Calls of `human.ask` that are kept back, at most: the question of each follows it soon."""
MOST_KNOWN: Final = 1_000
"""Questions and approvals of which it is known that the other job has asked them, at most."""

_Events: TypeAlias = list[tuple[str, JsonObject]]
_T = TypeVar("_T")


class ForwardedQuestions:
    """Asks in a job's name, and keeps the other job's events of its questions from being told."""

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._calls: dict[str, JsonObject] = {}
        """Bodies of calls of `human.ask` of which it is not known whether people are asked."""
        self._asked: dict[str, None] = {}
        self._announced: defaultdict[str, trio.Event] = defaultdict(trio.Event)
        """Set once the call that waits for an approval is told, by its id."""
        self._decided_by: dict[str, str] = {}
        """The principals that have decided on approvals, by the ids of the calls."""

    async def ask(self, question: Question) -> None:
        """Ask people, and pass on their answer; the other runtime minds the end of the time."""
        if question.kind == APPROVAL:
            await self._ask_approval(question)
            return
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

    async def _ask_approval(self, question: Question) -> None:
        call_id, capability = question.question_id, question.capability or ""
        await self._announced[call_id].wait()
        self._announced.pop(call_id, None)
        try:
            told = await self._decision(question, capability)
        except PermissionDenied as refusal:
            told = {"decision": DENY, **refusal.details}
        except ArcpError as error:  # nobody has decided, and the other runtime tells so
            log.info("approval not decided", extra={"job_id": self._job.id, "code": error.code})
            return
        if "by" in told:
            self._decided_by[call_id] = str(told["by"])
        with suppress(ArcpError):  # it is over
            await question.answer(told["decision"], reason=text_in(told.get("reason")))

    async def _decision(self, question: Question, capability: str) -> Mapping[str, JsonValue]:
        call_id, targets = question.question_id, question.targets
        try:
            for target in targets:
                self._job.authorize(capability, target)
        except ApprovalNeeded:
            tool, args = question.tool or "", question.args
            shown = to_json(question.shown)
            await self._job.ask_approval(call_id, tool, args, capability, targets, shown)
            return await self._job.decision(call_id)
        return {"decision": ALLOW}

    def instead_of(self, kind: str, body: JsonObject) -> _Events:
        """Return the events to tell in place of one of the other job's."""
        call_id = str(body.get("call_id"))
        if kind == "tool_call" and body.get("tool") == HUMAN_ASK:
            self._calls[call_id] = body
            return [(kind, each) for each in _oldest_beyond(MOST_HELD, self._calls)]
        if kind == "status" and body.get("phase") == APPROVAL:
            return []  # the job tells of it, if it has to ask
        if kind == "status" and body.get("phase") == APPROVED:
            if call_id not in self._decided_by:
                return []  # nobody has decided that here
            by, told = self._decided_by.pop(call_id), object_in(body.get("result"))
            said = by + str(body.get("message")).removeprefix(str(told.get("by")))
            return [(kind, {**body, "message": said, "result": {**told, "by": by}})]
        if kind == QUESTION and body.get("kind") == APPROVAL:
            self._announced[str(body.get("question_id"))].set()
            _oldest_beyond(MOST_KNOWN, self._announced)
            return []
        if kind == QUESTION:
            question_id = str(body.get("question_id"))
            self._calls.pop(question_id, None)
            self._asked[question_id] = None
            _oldest_beyond(MOST_KNOWN, self._asked)
            return []
        if kind == "tool_result" and call_id in self._asked:
            del self._asked[call_id]
            return []
        if kind == "tool_result" and call_id in self._decided_by:
            return [(kind, _by(body, self._decided_by.pop(call_id)))]
        if kind == "tool_result" and call_id in self._calls:  # the call was refused
            return [("tool_call", self._calls.pop(call_id)), (kind, body)]
        return [(kind, body)]


def _oldest_beyond(most: int, known: dict[str, _T]) -> list[_T]:
    """Remove and return the oldest values beyond a number: a program may tell of any number."""
    return [known.pop(next(iter(known))) for _ in range(len(known) - most)]


def _by(body: JsonObject, principal: str) -> JsonObject:
    """Return a `tool_result` that names who has decided, in place of this runtime."""
    if "error" not in body:
        return {**body, "result": {**object_in(body.get("result")), "by": principal}}
    error = object_in(body["error"])
    details = {**object_in(error.get("details")), "by": principal}
    return {**body, "error": {**error, "details": details}}
