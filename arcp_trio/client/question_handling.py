"""Calls the program's handler of questions, in a task for each question.

Without a handler a program could wait for days for a job that waits for an answer: it is warned.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from arcp_trio.client.asked_questions import AskedQuestion
from arcp_trio.client.questions import Question
from arcp_trio.client.unread import UnreadEvents
from arcp_trio.wire.errors import clip

if TYPE_CHECKING:
    from arcp_trio.client.session import ClientSession

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 1.0
"""How long a question is left to an iteration that may begin, or an answer that may come."""
_MOST_WARNINGS: Final = 16
"""Questions of which the program can be warned at once."""

QuestionHandler: TypeAlias = Callable[[Question], Awaitable[object]]


class QuestionHandling:
    """The handler of one client, and the questions that it is to be called with."""

    def __init__(self, session: ClientSession, unread: UnreadEvents) -> None:
        self._session = session
        self._unread = unread
        self._handler: QuestionHandler | None = None
        self._has_handler = trio.Event()
        # Bounded by `AskedQuestions` for each job, and jobs are bounded, too.
        self._send, self._asked = trio.open_memory_channel[AskedQuestion](math.inf)
        self._send_unheard, self._unheard = trio.open_memory_channel[AskedQuestion](_MOST_WARNINGS)

    def handle_with(self, handler: QuestionHandler, asked: Iterable[AskedQuestion]) -> None:
        """Call this handler from now on, first with the questions that are open."""
        first = self._handler is None
        self._handler = handler
        if first:
            for question in asked:
                self._send.send_nowait(question)
            self._has_handler.set()

    def tell(self, question: AskedQuestion) -> None:
        """Have the handler called with a question that has arrived, or a warning given."""
        if self._handler is not None:
            self._send.send_nowait(question)
            return
        with suppress(trio.WouldBlock):
            self._send_unheard.send_nowait(question)

    async def run(self) -> None:
        """Call the handler with each question, until it raises."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._warn, name="questions without a handler")
            await self._has_handler.wait()
            nursery.cancel_scope.cancel()
        # Questions may come after events that the program does not take.
        with self._unread.waiting():
            async with trio.open_nursery() as nursery:
                async for question in self._asked:
                    name = f"handler of {question.body.question_id}"
                    nursery.start_soon(self._handle, question, name=name)

    async def _warn(self) -> None:
        """Warn of each question of the session's own jobs that nothing in the program takes."""
        async for asked in self._unheard:
            await trio.sleep(PATIENCE_SECONDS)
            job = self._session.jobs.running.get(asked.job_id)
            if job is None or not job.own or job.questions.iterated or asked.over.is_set():
                continue
            log.warning(
                "%s waits for an answer to %r, which nothing in this program gives: answer with "
                "client.on_question or job.questions(), or with: arcp-trio answer %s",
                asked.job_id,
                clip(asked.body.prompt),
                asked.job_id,
            )

    async def _handle(self, asked: AskedQuestion) -> None:
        """Call the handler, and cancel it once the question is over."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_once, asked.over, nursery.cancel_scope, name="question over")
            if not asked.over.is_set():
                assert self._handler is not None
                await self._handler(Question(self._session, asked.job_id, asked.body, asked))
            nursery.cancel_scope.cancel()


async def _cancel_once(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
