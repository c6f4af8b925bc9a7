"""What the runtime answers to requests, and which of them each answer is for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from arcp_trio.client.amounts import amounts_in
from arcp_trio.client.calls import CANCEL, LIST, SUBMIT, SUBSCRIBE, Call
from arcp_trio.client.errors import ProtocolError
from arcp_trio.client.lenient import text_in
from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.messages import (
    TO_CLIENT,
    Accepted,
    Cancelled,
    Jobs,
    Subscribed,
    decode_payload,
)

if TYPE_CHECKING:
    from arcp_trio.client.session import Session

log = logging.getLogger(__name__)

T = TypeVar("T")

ENDED: Final = frozenset({"success", "error", "cancelled", "timed_out"})


class Answers:
    """A session's: settles its calls, and begins the streams of the jobs that they are about."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._calls = session.calls

    def accepted(self, frame: Envelope, text: str | bytes) -> None:
        """A job is there (§7.1): that of a submit, or one that was delegated."""
        body = read(frame, Accepted)
        if not isinstance(body, Accepted):
            call = self._calls.answered(SUBMIT, _request_id(frame))
            if call is not None:
                self._session.refuse(call, body)
            return
        call = self._calls.accepted(frame, body)
        stream = self._session.known(body.job_id) or self._session.begin(body.job_id)
        stream.own = True
        stream.authorise(body.credentials)
        stream.budget = amounts_in(text)
        if call is not None:
            stream.claimed = True
            stream.request = call.payload
            self._session.settle(call, (stream, body))

    def subscribed(self, frame: Envelope, text: str | bytes) -> None:
        """A job is observed from now on (§7.6)."""
        body = read(frame, Subscribed)
        call = self._calls.answered(
            SUBSCRIBE, _request_id(frame), text_in(frame.payload.get("job_id"))
        )
        if not isinstance(body, Subscribed):
            if call is not None:
                self._session.refuse(call, body)
            return
        if call is None:
            return
        session = self._session
        over = body.current_status in ENDED and not body.replayed
        stream = (over and session.known(body.job_id)) or session.jobs.running.get(body.job_id)
        stream = stream or session.begin(body.job_id)
        stream.authorise(body.credentials)
        stream.budget = amounts_in(text)
        stream.claimed = True
        session.settle(call, (stream, body))
        if over and not stream.own and not stream.end.arrived.is_set():
            stream.ended_before(
                InvalidRequest(
                    f"the job had ended ({body.current_status}); its history (history=True) tells "
                    "how, from before its end, as long as the runtime knows"
                )
            )
            session.retire(stream)

    def jobs(self, frame: Envelope, _: str | bytes) -> None:
        """A page of a listing (§6.6)."""
        call = self._calls.answered(LIST, _request_id(frame))
        if call is None:
            log.debug("ignored: a listing that nobody asked for")
            return
        body = read(frame, Jobs)
        if isinstance(body, Jobs):
            self._session.settle(call, body)
        else:
            self._session.refuse(call, body)

    def cancelled(self, frame: Envelope, _: str | bytes) -> None:
        """The runtime has agreed to a cancel (§7.4)."""
        body = read(frame, Cancelled)
        call = self._calls.about(CANCEL, body.job_id) if isinstance(body, Cancelled) else None
        if call is not None:
            self._session.settle(call, None)

    def refused(self, frame: Envelope, *, in_order: bool) -> Call | None:
        """Find the call that a `session.error` refuses, by order if it may be and names none."""
        return self._calls.refused(
            _request_id(frame),
            frame.job_id or text_in(frame.payload.get("job_id")),
            in_order=self._session.greeting.dialect.errors_in_order and in_order,
        )


def _request_id(frame: Envelope) -> str | None:
    return text_in(frame.payload.get("request_id"))


def read(frame: Envelope, cls: type[T]) -> T | ProtocolError:
    """Read a payload; what is wrong with it is for the one call or job that it is about."""
    try:
        body = decode_payload(frame, TO_CLIENT)
    except InvalidRequest as error:
        return ProtocolError(f"the runtime sent a {frame.type} that is none: {error}")
    assert isinstance(body, cls)
    return body
