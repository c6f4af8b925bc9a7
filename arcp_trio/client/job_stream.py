"""A job as its session receives it: its events, the chunks of its result, its end."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import attrs

from arcp_trio.client.asked_questions import AskedQuestions
from arcp_trio.client.assembly import Assembly
from arcp_trio.client.delivery import Delivery, Reply
from arcp_trio.client.errors import BrokenResult, afresh
from arcp_trio.client.event_log import EventLog, ReadingPlace
from arcp_trio.client.events import Event
from arcp_trio.client.unread import UnreadEvents
from arcp_trio.wire.errors import JobCancelled, JobFailed, JobTimedOut
from arcp_trio.wire.json import JsonObject, JsonValue, object_in, text_in
from arcp_trio.wire.messages import JobErrorBody, JobResult
from arcp_trio.wire.questions import APPROVED, QUESTION

_FAILURES: Final = {"cancelled": JobCancelled, "timed_out": JobTimedOut}
_CODES: Final = {"cancelled": "CANCELLED", "timed_out": "TIMEOUT"}

BEARER: Final = "bearer"

_SEEN_TO: Final = frozenset({"result_chunk", "status", "tool_result", QUESTION})
"""The kinds of events that the client does something with itself."""


@attrs.frozen(kw_only=True)
class JobEnd:
    """How a job ended."""

    status: str
    value: JsonValue | bytes = None
    error: Exception | None = None
    """Why there is no value. A job that succeeded has an error if its streamed result is broken."""
    message: JobResult | JobErrorBody | None = None
    """The payload of the frame that ended the job, where there was one."""

    def get(self) -> JsonValue | bytes:
        """Return the job's result, or raise the error."""
        if self.error is not None:
            raise afresh(self.error)
        return self.value


class JobStream:
    """Keeps what the session receives of one job, for its handles and their iterators."""

    def __init__(
        self,
        job_id: str,
        delivery: Delivery,
        unread: UnreadEvents,
        questions: AskedQuestions,
        *,
        top: int,
        max_result_bytes: int,
    ) -> None:
        self.id = job_id
        self.top = top
        """The number of the job's last event."""
        self.end: Reply[JobEnd] = Reply()
        self.questions = questions
        self.submission: bytes | None = None
        """The payload of the `job.submit` that led to the job, if this session sent it."""
        self.about: JsonObject = {}
        """Fields of `summary` that the handle knows."""
        self.credentials: dict[str, JsonObject] = {}
        self.budget: dict[str, Decimal] = {}
        """The budget when the job was accepted, or last subscribed to."""
        self.log = EventLog(unread)
        self.own = False
        """Whether the job belongs to this session, which cannot unsubscribe from it then."""
        self.was_own = False
        """Whether it did before an earlier stream of the job had ended."""
        self.whole = True
        """Whether the stream has the job's events from the first one on."""
        self.told = True
        """Whether `on_event` gets the events."""
        self.incomplete: Exception | None = None
        """Why events of the job are missing here, if some are."""
        self._delivery = delivery
        self._max_result_bytes = max_result_bytes
        self._assembly = Assembly(max_result_bytes)

    @property
    def status(self) -> str | None:
        """How the job ended; None before that."""
        return self.end.value.status if self.end.value is not None else None

    @property
    def has_chunks(self) -> bool:
        """Whether a chunk of a streamed result has come."""
        return self._assembly.begun

    def summary(self) -> JsonObject:
        """Return what is known of the job, for a program that loses its session."""
        return {"job_id": self.id, "last_event_seq": self.top, **self.about}

    # -- what arrives

    def event(self, event: Event, frame: str | bytes) -> bool:
        """Keep an event, which came in this frame; return whether `on_event` gets it."""
        self.top = event.seq
        replay = self.log.add(event, frame)
        if event.kind in _SEEN_TO and (replay is None or replay.builds):
            self._see_to(event)
        return self.told and (replay is None or replay.told)

    def begin_replay(self, most: float, *, told: bool) -> None:
        """Note that the runtime sends up to `most` frames again, from the job's beginning or later.

        With `told`, `on_event` gets them as well.
        """
        builds = told and not self.whole
        if builds:
            self._assembly = Assembly(self._max_result_bytes)
            self.whole = True
        self.log.begin_replay(most, told=told, builds=builds)

    def _see_to(self, event: Event) -> None:
        match event.kind:
            case "result_chunk":
                self._assembly.add(event.body)
            case "status":
                self._note_status(object_in(event.body))
            case "tool_result":
                self.questions.close(object_in(event.body))
            case _:
                self.questions.ask(object_in(event.body))

    def add_credentials(self, credentials: list[JsonObject] | None) -> None:
        """Keep the credentials of the job (§9.8); those of unknown schemes are left out."""
        for credential in credentials or ():
            credential_id = credential.get("id")
            if credential.get("scheme") == BEARER and isinstance(credential_id, str):
                self.credentials[credential_id] = credential

    def _note_status(self, body: JsonObject) -> None:
        """Note that an approval is decided, or replace the value of a credential (§9.8.2)."""
        if body.get("phase") == APPROVED:
            self.questions.close(body)
        if body.get("phase") != "credential_rotated":
            return
        credential_id, value = str(body.get("id")), text_in(body.get("value"))
        known = self.credentials.get(credential_id)
        if known is not None and value is not None:
            self.credentials[credential_id] = {**known, "value": value}

    # -- its end

    def succeed(self, body: JobResult) -> None:
        """End the job with a `job.result`, which some runtimes send for failures as well."""
        failure = _FAILURES.get(body.final_status)
        if failure is not None:
            code = _CODES[body.final_status]
            self.fail(JobErrorBody(code=code, final_status=body.final_status, message=code))
            return
        try:
            end = JobEnd(status=body.final_status, value=self._value(body), message=body)
        except BrokenResult as error:
            end = JobEnd(status=body.final_status, error=error, message=body)
        self._end(end)

    def fail(self, body: JobErrorBody) -> None:
        """End the job with a `job.error`."""
        failure = _FAILURES.get(body.final_status, JobFailed)
        error = failure(
            body.message or body.code,
            details=body.details,
            retryable=body.retryable,
            code=body.code,
        )
        error.job_id = self.id
        self._end(JobEnd(status=body.final_status, error=error, message=body))

    def end_unknown(self, why: Exception) -> None:
        """End the job without its result: the job is over, or no longer observed."""
        self._end(JobEnd(status="", error=why))

    def lose(self, why: Exception) -> None:
        """Give up the job: nothing more will arrive, and its end is not known."""
        if not self.end.arrived.is_set():
            self._delivery.fail(self.end, why)
            self.questions.end()
            self.log.wake()

    def _end(self, end: JobEnd) -> None:
        self._delivery.succeed(self.end, end)
        self.questions.end()
        self.credentials.clear()  # §9.8.2: no value is kept after the job
        self.log.wake()

    def _value(self, body: JobResult) -> JsonValue | bytes:
        if body.result_id is not None:
            return self._assembly.result(body.result_id, body.result_size)
        if self._assembly.begun:
            raise BrokenResult("chunks came, and the result does not refer to them")
        return body.value

    def miss(self, why: Exception) -> None:
        """Note that events were lost on the way. The end of the job may still arrive."""
        if self.incomplete is None:
            self.incomplete = why
        self.log.wake()


@attrs.define(eq=False)
class EventView:
    """What a handle sees of a job: its events from one place in its log on."""

    stream: JobStream
    place: int
    generation: int
    """The replays after this one are for others."""
    history: bool
    """Whether the place is the job's beginning, or the event after `from_event_seq`."""
    from_event_seq: int | None = None
    doubtful: bool = False
    """The job may have had events before, none of which this session was sent."""
    over: bool = attrs.field(default=False, init=False)
    """The program does not follow the job by this view any longer."""
    cursor: ReadingPlace | None = attrs.field(default=None, init=False)
    """The place of the iteration that has asked for the view, up to when it goes on."""

    def __attrs_post_init__(self) -> None:
        self.stream.log.claim(self)

    def begin(self) -> ReadingPlace:
        """Begin an iteration."""
        return ReadingPlace(self.stream.log, self.place, self.generation)

    def move_to(self, other: EventView) -> None:
        """See from now on what another view sees."""
        other.stream.log.claim(self)
        self.stream, self.place, self.generation = other.stream, other.place, other.generation

    def end(self) -> None:
        """Have iterations end: the program does not follow the job any longer."""
        self.over = True
        self.stream.log.release(self)
        self.stream.log.wake()
