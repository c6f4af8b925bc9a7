"""A session as its client has it: one object through all of its connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import attrs

from arcp_trio.client.answers import Answers
from arcp_trio.client.calls import Call, PendingCalls
from arcp_trio.client.connection import ClientConnection
from arcp_trio.client.connection_states import ConnectionStates
from arcp_trio.client.delivery import Delivery, Reply
from arcp_trio.client.errors import afresh
from arcp_trio.client.events import Event, read_event
from arcp_trio.client.handshake import Greeting
from arcp_trio.client.jobs import SessionJobs
from arcp_trio.client.question_handling import QuestionHandling
from arcp_trio.client.unread import UnreadEvents
from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import ArcpError, InvalidRequest, clip, error_from_payload
from arcp_trio.wire.json import text_in

log = logging.getLogger(__name__)

_FATAL: Final = frozenset({"UNAUTHENTICATED", "RESUME_WINDOW_EXPIRED"})
"""With these codes a `session.error` that is about nothing else ends the session."""
_NO_REFUSALS: Final = _FATAL | {"HEARTBEAT_LOST"}
"""With these codes a `session.error` that names no request refuses none."""

T = TypeVar("T")


@attrs.define
class SessionEnd:
    """Why calls can no longer be made."""

    error: Exception
    told: bool
    """Whether the program knows: it has closed the session, or a call has raised the error."""


class ClientSession:
    """Sends the program's calls, and takes the frames of whichever connection there is."""

    def __init__(
        self, greeting: Greeting, delivery: Delivery, unread: UnreadEvents, *, max_result_bytes: int
    ) -> None:
        self.greeting = greeting
        """The welcome at the beginning of the last connection."""
        self.calls = PendingCalls(delivery, greeting.dialect)
        self.question_handling = QuestionHandling(self, unread)
        self.jobs = SessionJobs(
            self.calls,
            delivery,
            unread,
            self.question_handling.tell,
            dialect=greeting.dialect,
            max_result_bytes=max_result_bytes,
        )
        self.unread = unread
        self.connection: ClientConnection | None = None
        """The current connection. Without one, calls wait for the next."""
        self.connection_states = ConnectionStates()
        self.closed: Reply[bool] = Reply()
        """Settled when the runtime has answered `session.close`: whether it understood."""
        self.refusal: ArcpError | None = None
        """The error with which the runtime ended the session, if it did."""
        self.end: SessionEnd | None = None
        self._delivery = delivery
        self._answers = answers = Answers(self.calls, self.jobs)
        self._closing = False
        self._handlers: dict[str, Callable[[Envelope, str | bytes], None]] = {
            "job.event": self._event,
            "job.result": self.jobs.result,
            "job.error": answers.job_error,
            "job.accepted": answers.accepted,
            "job.cancelled": answers.cancelled,
            "x-vendor.arcp-trio.stopped": answers.stopped,
            "x-vendor.arcp-trio.answered": answers.question_answered,
            "x-vendor.arcp-trio.token_made": answers.token_made,
            "job.subscribed": answers.subscribed,
            "session.jobs": answers.listing,
            "session.error": self._error,
            "session.closed": self._closed,
        }

    @property
    def id(self) -> str:
        """The session's id."""
        return self.greeting.session_id

    # -- its connections

    def resume(self, greeting: Greeting) -> None:
        """Go on with another connection, which has begun with this welcome."""
        self.greeting = greeting
        self.calls.dialect = self.jobs.dialect = greeting.dialect

    def attach(self, connection: ClientConnection) -> None:
        """Send on this connection from now on; first, again, every call that awaits its reply."""
        self.connection = connection
        for call in self.calls:
            connection.send_frame(self.calls.frame(call, self.id))
        for job_id in self.jobs.left:
            connection.send("job.unsubscribe", {"job_id": job_id}, job_id=job_id)
        self.connection_states.change(connected=True)

    # -- what the program asks for

    async def call(self, call: Call[T]) -> T:
        """Make a call and wait for its reply, on as many connections as it takes."""
        self.check()
        with self.pending(call), self.unread.waiting():
            return await call.reply.wait()

    @contextmanager
    def pending(self, call: Call[Any]) -> Generator[None]:
        """Send a call, and await its reply until the end of the block."""
        self.calls.add(call)  # before it is sent, so that no reply comes too early
        try:
            if self.connection is not None:
                self.connection.send_frame(self.calls.frame(call, self.id))
            yield
        finally:
            self.calls.remove(call)

    def unsubscribe(self, job_id: str) -> None:
        """Stop observing a job, unless it is the session's own or has another handle."""
        if self.jobs.leave(job_id) and self.connection is not None:
            self.connection.send("job.unsubscribe", {"job_id": job_id}, job_id=job_id)

    async def close(self) -> None:
        """Close the session and then its connection (§6.7); there has to be one.

        Returns once the runtime has answered. The connection ends when everything is sent.
        """
        connection = self.connection
        assert connection is not None
        if not self._closing:
            self._closing = True
            connection.send("session.close", {"reason": "the client leaves"})
        if not await self.closed.wait():
            connection.send("session.bye", {"reason": "the client leaves"})
        connection.finish()

    def check(self) -> None:
        """Raise if the session has ended."""
        if self.end is not None:
            self.end.told = True
            raise afresh(self.end.error)

    def require(self, feature: str) -> None:
        """Refuse to use what was not negotiated (§6.2)."""
        if feature not in self.greeting.features:
            raise InvalidRequest(f"not negotiated in this session: {feature}")

    # -- what the runtime sends

    def take(self, frame: Envelope, text: str | bytes) -> None:
        """Take the next frame; `text` is the frame as it came.

        Raises:
            Gap: frames before it are missing.
        """
        seq = frame.event_seq
        if seq is not None and not self.jobs.is_new(seq, frame.job_id):
            return
        handler = self._handlers.get(frame.type)
        if handler is None:
            log.debug("ignored: a frame of type %s", clip(frame.type))
            return
        handler(frame, text)

    def take_event(self, event: Event, frame: str | bytes) -> None:
        """Take the next frame, which is an event.

        Raises:
            Gap: frames before it are missing.
        """
        if self.jobs.is_new(event.seq, event.job_id):
            self.jobs.event(event, frame)

    def _event(self, frame: Envelope, text: str | bytes) -> None:
        self.jobs.event(read_event(frame), text)

    def _error(self, frame: Envelope, _: str | bytes) -> None:
        error = error_from_payload(frame.payload)
        is_refusal = text_in(frame.payload.get("code")) not in _NO_REFUSALS
        if self._answers.session_error(frame, error, is_refusal=is_refusal):
            return
        if self._closing:
            self._settle_closed(understood=False)
        elif error.code in _FATAL:
            self.refusal = error
        elif error.details.get("limit") == "frame_bytes_in":
            log.info("a frame is too large for the runtime, which will close the connection")
        else:
            log.warning("the runtime reports: %s: %s", error.code, clip(error.message))

    def _closed(self, _frame: Envelope, _text: str | bytes) -> None:
        self._settle_closed(understood=True)

    def _settle_closed(self, *, understood: bool) -> None:
        if not self.closed.arrived.is_set():
            self._delivery.succeed(self.closed, understood)

    # -- its end

    def finish(self, end: SessionEnd) -> None:
        """End the session for the program: fail every call and job, and every call from now on."""
        self.end = end
        self.calls.fail_all(end.error)
        self.jobs.lose_all(end.error)
        self._settle_closed(understood=True)
        self.connection_states.end()
