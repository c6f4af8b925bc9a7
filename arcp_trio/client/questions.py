"""A question of a job to people, as a program has it: what is asked, and how to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import trio

from arcp_trio.client.asked_questions import AskedQuestion
from arcp_trio.client.calls import answer_call
from arcp_trio.wire.errors import JobNotFound
from arcp_trio.wire.json import Json
from arcp_trio.wire.questions import APPROVAL, QuestionBody, Shown

if TYPE_CHECKING:
    from arcp_trio.client.job_stream import JobStream
    from arcp_trio.client.session import ClientSession


class Question:
    """A question of a job to people. It can be answered as long as it is open."""

    def __init__(
        self,
        session: ClientSession,
        job_id: str,
        body: QuestionBody,
        asked: AskedQuestion | None = None,
    ) -> None:
        self.job_id = job_id
        self.question_id = body.question_id
        self.prompt = body.prompt
        self.options: Sequence[str] | None = body.options
        """The texts of which the answer is one."""
        self.schema: Mapping[str, Json] | None = body.schema
        """What the answer must be, in JSON Schema. Without options and schema any JSON will do."""
        self.to = body.to
        """The person or the group that is meant to answer."""
        self.expires_at = body.expires_at
        """The time from which on it is too late to answer."""
        self.kind = body.kind
        """`approval` if the job asks for leave to do what its lease allows on that condition."""
        self.capability = body.capability
        """The capability that an approval asks for, such as `fs.write`."""
        self.targets: Sequence[str] = body.targets or ()
        """What an approval is about."""
        self.tool = body.tool
        self.args: Json = body.args
        """The tool call that waits for an approval."""
        self.shown = body.shown or Shown()
        """What else there is to see of it: the folder, the command, the changes of files."""
        self.for_job = body.for_job
        """What answering with the scope `job` allows, in words."""
        self.truncated = body.truncated is True
        """Whether `args` are not whole."""
        self.wants_text = body.wants_text
        """Whether the answer is a text."""
        self._session = session
        self._asked = asked

    def __repr__(self) -> str:
        return f"<Question {self.question_id} of {self.job_id}: {self.prompt!r}>"

    async def answer(
        self,
        value: Json,
        *,
        scope: Literal["once", "job"] | None = None,
        reason: str | None = None,
    ) -> None:
        """Answer the question, and return when the answer counts, and is stored.

        Args:
            value: the answer; to an approval, `allow` or `deny`.
            scope: of an approval: `job` decides the same for the rest of the job, `once` does not.
            reason: of an approval: told to all that watch the job.

        Raises:
            InvalidRequest: it is not what was asked for; the question stays open.
            JobNotFound: the question is answered already, or over.
            PermissionDenied: the client may only observe the job.
            ArcpError: the class of the refusal's code.
            ValueError: the answer is not JSON.
        """
        call = answer_call(self.job_id, self.question_id, value, scope=scope, reason=reason)
        try:
            await self._session.call(call)
        except JobNotFound as error:
            refusal = error
        else:
            return
        # Repeated on another connection, the call may find the question that it has answered.
        if not (call.repeated and await self._is_answered_by(value)):
            raise refusal

    async def _is_answered_by(self, value: Json) -> bool:
        asked = self._asked
        if asked is None:
            return False
        with self._session.unread.waiting():
            await asked.over.wait()
        told = "decision" if self.kind == APPROVAL else "answer"
        return told in asked.result and asked.result[told] == value


class QuestionIterator:
    """Iterates over the questions of a job that are open, and over those to come, up to its end."""

    def __init__(self, session: ClientSession, stream: JobStream) -> None:
        self._session = session
        self._stream = stream
        stream.questions.iterated = True
        self._number = 0

    def __aiter__(self) -> QuestionIterator:
        return self

    async def __anext__(self) -> Question:
        await trio.lowlevel.checkpoint()
        questions, end = self._stream.questions, self._stream.end
        while (asked := questions.after(self._number)) is None:
            if end.arrived.is_set():
                end.get()  # raises if the job was lost
                raise StopAsyncIteration
            await questions.changed()
        self._number = asked.number
        return Question(self._session, asked.job_id, asked.body, asked)
