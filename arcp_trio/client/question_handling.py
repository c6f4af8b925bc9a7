"""Calls the program's handler of questions, in a task for each question."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import trio

from arcp_trio.client.asked_questions import AskedQuestion
from arcp_trio.client.questions import Question
from arcp_trio.client.unread import UnreadEvents

if TYPE_CHECKING:
    from arcp_trio.client.session import ClientSession

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

    def handle_with(self, handler: QuestionHandler, asked: Iterable[AskedQuestion]) -> None:
        """Call this handler from now on, first with the questions that are open."""
        first = self._handler is None
        self._handler = handler
        if first:
            for question in asked:
                self._send.send_nowait(question)
            self._has_handler.set()

    def tell(self, question: AskedQuestion) -> None:
        """Have the handler called with a question that has arrived, if there is a handler."""
        if self._handler is not None:
            self._send.send_nowait(question)

    async def run(self) -> None:
        """Call the handler with each question, until it raises."""
        await self._has_handler.wait()
        # Questions may come after events that the program does not take.
        with self._unread.waiting():
            async with trio.open_nursery() as nursery:
                async for question in self._asked:
                    name = f"handler of {question.body.question_id}"
                    nursery.start_soon(self._handle, question, name=name)

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
