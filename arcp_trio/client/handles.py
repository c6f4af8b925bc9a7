"""Handles: a program's side of a job, with an iterator over the job's events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from decimal import Decimal
from weakref import finalize

import trio

from arcp_trio.client.calls import NO_REASON, cancel_call
from arcp_trio.client.errors import afresh
from arcp_trio.client.events import Event, EventCheckpoints
from arcp_trio.client.job_stream import JobStream
from arcp_trio.client.questions import Question, QuestionIterator
from arcp_trio.client.session import ClientSession
from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import Json
from arcp_trio.wire.messages import Accepted, Subscribed
from arcp_trio.wire.payloads import to_json


class _Handle:
    """The common part of the handles of submitters and observers."""

    def __init__(
        self, session: ClientSession, stream: JobStream, body: Accepted | Subscribed
    ) -> None:
        self.id = stream.id
        self.agent = body.agent or ""
        """The agent as the runtime resolved it: `name@version` (§7.5)."""
        self.lease: Mapping[str, Json] = body.lease or {}
        """The lease that the job was granted (§9)."""
        self.lease_constraints: Mapping[str, Json] = body.lease_constraints or {}
        self.budget: Mapping[str, Decimal] = stream.budget
        """The budget by currency, at the beginning of the job or of the observation (§9.6)."""
        self.trace_id = body.trace_id
        self._session = session
        self._stream = stream
        # Events are not kept for a program that has no handle to ask for them.
        finalize(self, stream.unwanted).atexit = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    @property
    def credentials(self) -> list[dict[str, Json]]:
        """The credentials of the job, with their newest values; empty after its end (§9.8)."""
        return list(self._stream.credentials.values())

    @property
    def terminal(self) -> dict[str, Json] | None:
        """The payload of the message that ended the job, with its type; None before that (§7.3)."""
        end = self._stream.end.value
        if end is None or end.message is None:
            return None
        return {"type": end.message.type, **to_json(end.message)}

    def events(self) -> AsyncIterator[Event]:
        """Iterate over the job's events, in order, up to its end.

        Each event comes once: an iterator that begins late gets every event, and one that begins
        after another has stopped goes on where that one stopped. Chunks of a streamed result are
        among the events; taking them does not affect `result`.

        Raises:
            EventsNotKept: while iterating, if too many events were unread for too long.
            ConnectionFailed, ResumeWindowExpired: while iterating, if the session was lost before
                the job ended.
        """
        return EventIterator(self._stream, self)

    def questions(self) -> AsyncIterator[Question]:
        """Iterate over the questions that the job asks people, as long as they are open.

        They are also among the events, as a tool call of `human.ask` and an event beside it.

        Raises:
            InvalidRequest: the runtime has no questions.
            ConnectionFailed, ResumeWindowExpired: while iterating, if the session was lost before
                the job ended.
        """
        self._session.require(Feature.QUESTIONS)
        return QuestionIterator(self._session, self._stream)

    async def result(self) -> Json:
        """Wait for the job's end and return what its agent returned.

        A streamed result comes assembled: text, or bytes if any chunk was binary.

        Raises:
            JobFailed, JobCancelled, JobTimedOut: the job ended otherwise.
            BrokenResult: the chunks of the result do not fit together.
            ConnectionFailed, ResumeWindowExpired: the session was lost before the job ended.
        """
        with self._session.unread.waiting():
            end = await self._stream.end.wait()
        return end.get()


class JobHandle(_Handle):
    """A job, for its submitter. `Client.submit` makes one."""

    def __init__(
        self, session: ClientSession, stream: JobStream, body: Accepted, *, idempotency_key: str
    ) -> None:
        super().__init__(session, stream, body)
        self.idempotency_key = idempotency_key
        """The key under which a repeated submit leads to this job, from any session (§7.2)."""

    async def cancel(self, reason: str = NO_REASON) -> None:
        """Ask for the job's end, and return when the runtime has agreed to it.

        Raises:
            ArcpError: the class of the refusal's code; `InvalidRequest` if the job has ended.
        """
        call = cancel_call(self.id, reason)
        try:
            await self._session.call(call)
        except InvalidRequest:
            # Repeated on another connection, the call may find the job that it has ended itself.
            if not (call.repeated and self._stream.status == "cancelled"):
                raise


class ObservedJob(_Handle):
    """A job that was submitted in another session. `Client.subscribe` makes one."""

    def __init__(self, session: ClientSession, stream: JobStream, body: Subscribed) -> None:
        super().__init__(session, stream, body)
        self.status = body.current_status
        """The job's status when the observation began."""

    async def unsubscribe(self) -> None:
        """Stop observing: `events` ends. A second call does nothing."""
        self._session.unsubscribe(self.id)
        await trio.lowlevel.checkpoint()


class EventIterator:
    """Takes the events of a job as they come, up to its end."""

    # Not an async generator: Trio wants one that is left by `break` to be closed.

    def __init__(self, stream: JobStream, handle: object) -> None:
        self._stream = stream
        self._handle = handle  # events are kept only while there is a handle
        self._checkpoints = EventCheckpoints()
        stream.iterators.add(self)

    def __aiter__(self) -> EventIterator:
        return self

    async def __anext__(self) -> Event:
        stream = self._stream
        await self._checkpoints.next()
        while not stream.events:
            if stream.incomplete is not None:
                raise afresh(stream.incomplete)
            if stream.end.arrived.is_set():
                stream.end.get()  # raises if the job was lost
                raise StopAsyncIteration
            await stream.changed()
        return stream.take()
