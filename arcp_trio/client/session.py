"""A session as its client has it: across all of its connections, what came and what is open."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from arcp_trio.client.answers import Answers, read
from arcp_trio.client.calls import CANCEL, SUBMIT, Call, Calls
from arcp_trio.client.delivery import Answer, Delivery
from arcp_trio.client.dialects import CANCEL_REFUSALS, STANDARD, refuses_submit
from arcp_trio.client.events import Event
from arcp_trio.client.handshake import Greeting
from arcp_trio.client.known import KnownJobs
from arcp_trio.client.lenient import text_in
from arcp_trio.client.link import Gap
from arcp_trio.client.room import Room
from arcp_trio.client.stream import JobStream
from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import ArcpError, InvalidRequest, clip, error_from_payload
from arcp_trio.wire.messages import JobErrorBody, JobResult

log = logging.getLogger(__name__)

_FATAL: Final = frozenset({"UNAUTHENTICATED", "RESUME_WINDOW_EXPIRED"})
"""Codes of a `session.error` that answers nothing and leaves no session to go on with."""


class Session:
    """Fed frame by frame, in order, by whichever link there is."""

    def __init__(
        self, greeting: Greeting, delivery: Delivery, room: Room, most_result: int
    ) -> None:
        self.greeting = greeting
        self.top = 0
        """All numbers up to this one were read: where a resume goes on."""
        self.calls = Calls()
        self.jobs = KnownJobs(room, most_result)
        self.closed: Answer[bool] = Answer()
        """Whether the runtime took leave, too; not all know how."""
        self.closing = False
        self.over: ArcpError | None = None
        """The runtime has said that there is no session any more."""
        self._delivery = delivery
        self._answers = Answers(self)
        self._takers: dict[str, Callable[[Envelope, str | bytes], None]] = {
            "job.event": self._event,
            "job.result": self._result,
            "job.error": self._error,
            "job.accepted": self._answers.accepted,
            "job.cancelled": self._answers.cancelled,
            "job.subscribed": self._answers.subscribed,
            "session.jobs": self._answers.jobs,
            "session.error": self._refused,
            "session.closed": self._closed,
        }

    @property
    def id(self) -> str:
        """Its id."""
        return self.greeting.session_id

    def take(self, frame: Envelope, text: str | bytes) -> None:
        """Take the next frame, and as what it came.

        Raises:
            Gap: frames before it are missing.
        """
        seq = frame.event_seq
        if seq is not None:
            if seq == self.top + 1:
                self.top = seq
            elif not self._is_owed(frame, seq):
                return
        taker = self._takers.get(frame.type)
        if taker is None:
            log.debug("ignored: a frame of type %s", clip(frame.type))
            return
        taker(frame, text)

    def settle(self, call: Call, value: object) -> None:
        """Answer a call."""
        self.calls.remove(call)
        call.answer.succeed(value)
        self._delivery.settled(call.answer)

    def refuse(self, call: Call, error: Exception) -> None:
        """Answer a call the other way."""
        self.calls.remove(call)
        call.answer.fail(error)
        self._delivery.settled(call.answer)

    def lose(self, why: Exception) -> None:
        """Nothing more will come: tell everybody who waits."""
        for call in self.calls:
            self.refuse(call, why)
        for stream in list(self.jobs.running.values()):
            self.give_up(stream, why)
        self._close(polite=True)

    def expect(self, job_id: str) -> None:
        """A subscription is asked for: some runtimes send its events before they say so."""
        self.jobs.left.pop(job_id, None)
        if self.greeting.dialect is not STANDARD and job_id not in self.jobs.running:
            self.begin(job_id)

    def leave(self, job_id: str) -> bool:
        """Stop observing a job; false if that has happened, or it has ended, or is one's own."""
        stream = self.jobs.running.get(job_id)
        if stream is None or stream.own:
            return False
        stream.ended_before(InvalidRequest("the job is not observed any more"))
        self._delivery.settled(stream.end)
        self.jobs.leave(stream)
        return True

    def give_up(self, stream: JobStream, why: Exception) -> None:
        """Nothing more can be had of a job."""
        if not stream.end.arrived.is_set():
            stream.lose(why)
            self.retire(stream)

    # -- numbers (§8.3)

    def _is_owed(self, frame: Envelope, seq: int) -> bool:
        """Whether a frame that is not the next one is to be taken all the same."""
        if seq > self.top:
            raise Gap(f"event_seq {seq} came where {self.top + 1} was due")
        # It came before; unless this job has numbers of its own.
        stream = self.jobs.running.get(frame.job_id or "")
        return stream is not None and seq > stream.top

    # -- jobs

    def begin(self, job_id: str) -> JobStream:
        """Have a stream for a job, from here on."""
        top = 0 if self.greeting.dialect.subscriptions_count_alone else self.top
        return self.jobs.begin(job_id, top=top)

    def known(self, job_id: str) -> JobStream | None:
        """A job that there is a stream of, or was; what has ended is not told again."""
        stream = self.jobs.get(job_id)
        if stream is None and self.jobs.has_ended(job_id):
            stream = self.begin(job_id)
            stream.ended_before(InvalidRequest(f"{job_id} has ended, and its handle is gone"))
            self.retire(stream)
        return stream

    def _event(self, frame: Envelope, text: str | bytes) -> None:
        event = Event.of(frame)
        stream = self.jobs.running.get(event.job_id)
        if stream is not None:
            stream.event(event, len(text))
        elif event.job_id in self.jobs.left:
            return
        self._delivery.event(event, len(text), self.top)

    def _result(self, frame: Envelope, _: str | bytes) -> None:
        stream = self.jobs.running.get(frame.job_id or "")
        body = read(frame, JobResult)
        if stream is None:
            return
        if isinstance(body, JobResult):
            stream.result(body)
            self.retire(stream)
        else:
            stream.lose(body)
            self.retire(stream)

    def _error(self, frame: Envelope, _: str | bytes) -> None:
        body = read(frame, JobErrorBody)
        stream = self.jobs.running.get(frame.job_id or "")
        code = str(frame.payload.get("code"))
        call: Call | None = None
        if refuses_submit(code, known_job=stream is not None):
            call = self.calls.oldest(SUBMIT)
        elif code in CANCEL_REFUSALS and frame.job_id is not None:
            call = self.calls.about(CANCEL, frame.job_id)
        if call is not None:
            self.refuse(call, error_from_payload(frame.payload))
        elif stream is None:
            log.debug("ignored: the end of a job that nobody knows")
        elif isinstance(body, JobErrorBody):
            stream.error(body)
            self.retire(stream)
        else:
            stream.lose(body)
            self.retire(stream)

    def retire(self, stream: JobStream) -> None:
        """It has ended; what of it is unread is its handle's business."""
        self._delivery.settled(stream.end)
        self.jobs.retire(stream)
        if not stream.claimed:
            stream.let_go()
        self._answer_cancels(stream)

    def _answer_cancels(self, stream: JobStream) -> None:
        """Some runtimes say no more to a cancel than how the job ends."""
        if self.greeting.dialect is STANDARD:
            return  # it says so itself
        while (call := self.calls.about(CANCEL, stream.id)) is not None:
            self.settle(call, None)

    # -- the session itself

    def _refused(self, frame: Envelope, _: str | bytes) -> None:
        error = error_from_payload(frame.payload)
        answers_none = text_in(frame.payload.get("code")) in _FATAL | {"HEARTBEAT_LOST"}
        call = self._answers.refused(frame, in_order=not answers_none)
        observed = self.jobs.running.get(frame.job_id or str(frame.payload.get("job_id")))
        if call is not None:
            self.refuse(call, error)
        elif observed is not None and not observed.own:
            self.give_up(observed, error)  # that subscription has ended, and nothing else
        elif self.closing:
            self._close(polite=False)
        elif error.code in _FATAL:
            self.over = error
        elif error.details.get("limit") == "frame_bytes_in":
            log.info("the runtime minds a frame's size, and will close the connection")
        else:
            log.warning("the runtime says: %s: %s", error.code, clip(error.message))

    def _closed(self, _frame: Envelope, _: str | bytes) -> None:
        self._close(polite=True)

    def _close(self, *, polite: bool) -> None:
        if not self.closed.arrived.is_set():
            self.closed.succeed(polite)
            self._delivery.settled(self.closed)
