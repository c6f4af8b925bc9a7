"""Handles: a program's side of a job, with an iterator over the job's events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from decimal import Decimal

import trio

from arcp_trio.client.calls import NO_REASON, WantedEvents, cancel_call, subscribe_call
from arcp_trio.client.dialects import STANDARD
from arcp_trio.client.errors import BrokenResult, ConnectionFailed, EventsNotKept, afresh
from arcp_trio.client.events import Event, EventCheckpoints, is_notice
from arcp_trio.client.job_stream import EventView
from arcp_trio.client.questions import Question, QuestionIterator
from arcp_trio.client.session import ClientSession
from arcp_trio.wire.errors import ArcpError, InvalidRequest
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import Json
from arcp_trio.wire.messages import Accepted, Subscribed
from arcp_trio.wire.payloads import to_json


class _Handle:
    """The common part of the handles of submitters and observers."""

    def __init__(
        self, session: ClientSession, view: EventView, body: Accepted | Subscribed
    ) -> None:
        self._session = session
        self._view = view
        self._stream = stream = view.stream
        self.id = stream.id
        self.agent = body.agent or ""
        """The agent as the runtime resolved it: `name@version` (§7.5)."""
        self.lease: Mapping[str, Json] = body.lease or {}
        """The lease that the job was granted (§9)."""
        self.lease_constraints: Mapping[str, Json] = body.lease_constraints or {}
        self.budget: Mapping[str, Decimal] = stream.budget
        """The budget by currency, at the beginning of the job or of the observation (§9.6)."""
        self.trace_id = body.trace_id

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

        Each iteration sees every event, whenever it begins, and at its own pace: of a job that was
        submitted, and of one that is observed with `history=True`, from the first one on; of one
        that is observed without, from when the observation began. The client keeps the events
        within bounds. If it keeps those no longer that an iteration needs, the runtime sends them
        again, and they have other numbers (`seq`) then. Chunks of a streamed result are among the
        events; taking them does not affect `result`.

        Raises:
            EventsNotKept: while iterating, if events are neither kept nor to be had again.
            ConnectionFailed, ResumeWindowExpired: while iterating, if the session was lost before
                the job ended.
        """
        return EventIterator(self._session, self._view)

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
            if isinstance(end.error, BrokenResult) and self._may_have_chunks():
                # The job had ended when this session came to it: its chunks are history.
                wanted = WantedEvents(history=True, for_iteration=True)
                fresh, _ = await self._session.call(subscribe_call(self.id, wanted))
                end = await fresh.stream.end.wait()
        return end.get()

    def _may_have_chunks(self) -> bool:
        """Whether the runtime may have chunks of the result, of which none has come."""
        greeting = self._session.greeting
        can_ask = greeting.dialect is STANDARD and Feature.SUBSCRIBE in greeting.features
        return can_ask and self._view.history and not self._stream.has_chunks


class JobHandle(_Handle):
    """A job, for its submitter. `Client.submit` makes one."""

    def __init__(
        self, session: ClientSession, view: EventView, body: Accepted, *, idempotency_key: str
    ) -> None:
        super().__init__(session, view, body)
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
    """A job that is observed. `Client.subscribe` makes one."""

    def __init__(self, session: ClientSession, view: EventView, body: Subscribed) -> None:
        super().__init__(session, view, body)
        self.status = body.current_status
        """The job's status when the observation began."""

    async def unsubscribe(self) -> None:
        """Stop observing by this handle: `events` ends. A second call does nothing."""
        self._view.end()
        self._session.unsubscribe(self.id)
        await trio.lowlevel.checkpoint()


class EventIterator:
    """Takes the events of a job as they come, up to its end."""

    # Not an async generator: Trio wants one that is left by `break` to be closed.

    def __init__(self, session: ClientSession, view: EventView) -> None:
        self._session = session
        self._view = view  # events are kept only while there is a view
        self._stream = view.stream
        self._cursor = view.begin()
        self._checkpoints = EventCheckpoints()
        self._taken = 0
        self._skipped = 0
        """How many of the events that were taken are still to come again."""

    def __aiter__(self) -> EventIterator:
        return self

    async def __anext__(self) -> Event:
        await self._checkpoints.next()
        while not self._view.over:
            event = self._cursor.next()
            if event is not None:
                counts = not is_notice(event)
                if self._skipped:
                    self._skipped -= counts
                    continue
                self._taken += counts
                return event
            stream = self._stream
            if self._cursor.missed:
                await self._read_again()
            elif stream.incomplete is not None:
                raise afresh(stream.incomplete)
            elif not stream.end.arrived.is_set():
                await stream.log.changed()
            else:
                stream.end.get()  # raises if the job was lost
                if not (self._view.doubtful and await self._had_events()):
                    break
        raise StopAsyncIteration

    async def _had_events(self) -> bool:
        """Return whether a job that has ended may have events that this session was not sent."""
        self._view.doubtful = False
        dialect, features = self._session.greeting.dialect, self._session.greeting.features
        if self._stream.log.end or dialect is not STANDARD or Feature.SUBSCRIBE not in features:
            return False
        await self._read_again()
        return True

    async def _read_again(self) -> None:
        """Go on with a replay by the runtime.

        Raises:
            EventsNotKept: the runtime does not send the events again.
        """
        view, job_id = self._view, self._stream.id
        gone = f"the events of {job_id} were not read in time, and are no longer kept"
        if not view.history:
            raise EventsNotKept(f"{gone}: subscribe with history=True, or use on_event")
        wanted = WantedEvents(history=True, from_event_seq=view.from_event_seq, for_iteration=True)
        try:
            self._session.require(Feature.SUBSCRIBE)
            fresh, _ = await self._session.call(subscribe_call(job_id, wanted))
        except (ArcpError, ConnectionFailed) as error:
            raise EventsNotKept(f"{gone}, and cannot be had again: {error}") from error
        if fresh.cursor is None or fresh.cursor.missed:
            raise EventsNotKept(f"{gone}, and the runtime does not send them again")
        view.move_to(fresh)
        self._stream, self._cursor = fresh.stream, fresh.cursor
        self._skipped = self._taken
