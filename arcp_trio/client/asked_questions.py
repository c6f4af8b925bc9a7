"""The questions that a job's events tell of, until each is answered or over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import attrs
import trio

from arcp_trio.client.unread import UnreadEvents
from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.json import JsonObject, JsonValue, object_in
from arcp_trio.wire.payloads import read
from arcp_trio.wire.questions import QuestionBody

log = logging.getLogger(__name__)

MOST_OPEN: Final = 1_000
"""Open questions of one job, at most: past it the oldest counts as over."""


@attrs.define(eq=False)
class AskedQuestion:
    """A question that has arrived, until it is over."""

    job_id: str
    number: int
    """1, 2, 3 … in the order of the job's questions."""
    body: QuestionBody
    over: trio.Event = attrs.field(factory=trio.Event, init=False)
    result: JsonObject = attrs.field(factory=dict[str, JsonValue], init=False)
    """What the question came to: the answer or decision and who gave it, if anybody did."""


class AskedQuestions:
    """The open questions of one job, as far as its events tell."""

    def __init__(
        self, job_id: str, unread: UnreadEvents, tell: Callable[[AskedQuestion], None]
    ) -> None:
        self.open: dict[str, AskedQuestion] = {}
        self.iterated = False
        """Whether the program has iterated over the questions."""
        self._job_id = job_id
        self._unread = unread
        self._tell = tell
        self._count = 0
        self._changed = trio.lowlevel.ParkingLot()

    def ask(self, body: JsonObject) -> None:
        """Take the body of an event that tells of a question."""
        try:
            asked = read(QuestionBody, body, root="$")
        except InvalidRequest as error:
            log.debug("ignored: a question that cannot be read: %s", error)
            return
        if asked.question_id in self.open:
            return  # history has it as well
        self._count += 1
        question = AskedQuestion(self._job_id, self._count, asked)
        self.open[asked.question_id] = question
        if len(self.open) > MOST_OPEN:
            self.open.pop(next(iter(self.open))).over.set()
        self._tell(question)
        self._changed.unpark_all()

    def close(self, body: JsonObject) -> None:
        """Take the result of a tool call, which may be a question's."""
        question = self.open.pop(str(body.get("call_id")), None)
        if question is not None:
            # What became of an approval that was not given is among the details of an error.
            failure = object_in(body.get("error"))
            question.result = object_in(body.get("result")) or object_in(failure.get("details"))
            question.over.set()

    def end(self) -> None:
        """End all questions: the job is over, or no longer followed."""
        for question in self.open.values():
            question.over.set()
        self.open.clear()
        self._changed.unpark_all()

    def after(self, number: int) -> AskedQuestion | None:
        """Return the first open question after the one with this number."""
        return next((each for each in self.open.values() if each.number > number), None)

    async def changed(self) -> None:
        """Wait until there is another question, or the job's end."""
        with self._unread.waiting():
            await self._changed.park()
