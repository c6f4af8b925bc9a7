"""Takes the answers of the runtime, each of which settles the call that it is for."""

from __future__ import annotations

import logging
import math
from typing import Any, Final

from arcp_trio.client.calls import (
    ANSWER,
    CANCEL,
    LIST,
    STOP,
    SUBMIT,
    SUBSCRIBE,
    TOKEN,
    Call,
    PendingCalls,
    WantedEvents,
)
from arcp_trio.client.dialects import STANDARD
from arcp_trio.client.event_log import NOWHERE
from arcp_trio.client.job_stream import EventView, JobStream
from arcp_trio.client.jobs import SessionJobs
from arcp_trio.client.reading import budget_in, read_payload
from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import ArcpError, error_from_payload
from arcp_trio.wire.json import text_in
from arcp_trio.wire.messages import (
    Accepted,
    Cancelled,
    JobListing,
    QuestionAnswered,
    Stopped,
    Subscribed,
    TokenMade,
)

log = logging.getLogger(__name__)

ENDED: Final = frozenset({"success", "error", "cancelled", "timed_out"})
"""The statuses of a job that has ended (§7.3)."""

_REFUSES_SUBMIT: Final = "DUPLICATE_KEY"
"""With this code a `job.error` refuses a submit, even if it names a known job."""
_REFUSES_CANCEL: Final = frozenset({"PERMISSION_DENIED", "JOB_NOT_FOUND"})
"""With these codes a `job.error` refuses the pending cancel of its job, if there is one."""


class Answers:
    """Takes the frames that answer the calls of a session."""

    def __init__(self, calls: PendingCalls, jobs: SessionJobs) -> None:
        self._calls = calls
        self._jobs = jobs

    def accepted(self, frame: Envelope, text: str | bytes) -> None:
        """Take a `job.accepted` (§7.1), of a submit or of a job that was delegated."""
        body = read_payload(frame, Accepted)
        if not isinstance(body, Accepted):
            call = self._calls.answered(SUBMIT, _request_id(frame))
            if call is not None:
                self._calls.fail(call, body)
            return
        call = self._calls.accepted(frame, body)
        stream = self._jobs.submitted(body.job_id)
        observed = not (stream.own or stream.was_own) and stream.log.claimed
        stream.own = True
        if call is None:
            self._jobs.keep_unclaimed(stream)
            return
        stream.add_credentials(body.credentials)
        stream.budget = budget_in(text)
        stream.submission = call.payload
        if observed and self._jobs.dialect is STANDARD:
            # The job's events come from the first one on, also those that have come before.
            stream.begin_replay(math.inf, told=not stream.whole)
            view = EventView(stream, stream.log.end, stream.log.generation, history=True)
        else:
            view = EventView(stream, 0, 0, history=True)
        self._calls.succeed(call, (view, body))

    def subscribed(self, frame: Envelope, text: str | bytes) -> None:
        """Take a `job.subscribed` (§7.6)."""
        job_id = text_in(frame.payload.get("job_id"))
        call = self._calls.answered(SUBSCRIBE, _request_id(frame), job_id)
        body = read_payload(frame, Subscribed)
        if not isinstance(body, Subscribed):
            if call is not None:
                self._calls.fail(call, body)
            return
        jobs = self._jobs
        if jobs.is_repeated(frame.id):
            return
        known = jobs.running.get(body.job_id)
        goes_on = known is not None and jobs.dialect is STANDARD  # its end is yet to come
        if known is not None and goes_on and body.replayed:
            # Even if nobody waits for the answer any longer: the frames come.
            told = call is not None and not call.wanted.for_iteration
            known.begin_replay(max(1, (body.subscribed_from or 0) - jobs.top), told=told)
        if call is None:
            return
        gone = (body.extras or {}).get("gone")
        if gone:
            log.warning("the first %s events of %s are no longer kept", gone, body.job_id)
        over = body.current_status in ENDED and not body.replayed and not goes_on
        view = self._view(known, body, call.wanted, over=over)
        stream = view.stream
        stream.add_credentials(body.credentials)
        stream.budget = budget_in(text)
        self._calls.succeed(call, (view, body))
        if over and not stream.own and not stream.end.arrived.is_set():
            jobs.end_unknown(
                stream,
                f"the job had ended ({body.current_status}); its history (history=True) tells how, "
                "from before its end, as long as the runtime knows",
            )

    def _view(
        self, known: JobStream | None, body: Subscribed, wanted: WantedEvents, *, over: bool
    ) -> EventView:
        """Return what the subscriber is to see of the job."""
        jobs = self._jobs
        stream = known or (jobs.find(body.job_id) if over else None)
        place, generation = 0, 0
        whole = wanted.history and not wanted.from_event_seq
        if stream is None:
            stream = jobs.begin(body.job_id)
            stream.whole, stream.told = whole, not wanted.for_iteration
        elif jobs.dialect is STANDARD:
            log = stream.log
            if whole and not body.replayed and (over or not log.fresh):
                place = 0 if stream.whole else NOWHERE  # what came before is here, or nowhere
            else:
                place, generation = log.end, log.generation
        view = EventView(stream, place, generation, wanted.history, wanted.from_event_seq)
        if wanted.for_iteration:
            view.cursor = view.begin()
        return view

    def listing(self, frame: Envelope, _: str | bytes) -> None:
        """Take a `session.jobs`, a page of a listing (§6.6)."""
        call = self._calls.answered(LIST, _request_id(frame))
        if call is None:
            log.debug("ignored: a listing that no call awaits")
            return
        body = read_payload(frame, JobListing)
        if isinstance(body, JobListing):
            self._calls.succeed(call, body)
        else:
            self._calls.fail(call, body)

    def cancelled(self, frame: Envelope, _: str | bytes) -> None:
        """Take a `job.cancelled`: the runtime has agreed to a cancel (§7.4)."""
        body = read_payload(frame, Cancelled)
        call = self._calls.about(CANCEL, body.job_id) if isinstance(body, Cancelled) else None
        if call is not None:
            self._calls.succeed(call, None)

    def stopped(self, frame: Envelope, _: str | bytes) -> None:
        """Take an `x-vendor.arcp-trio.stopped`: the runtime has agreed to a stop."""
        body = read_payload(frame, Stopped)
        call = self._calls.about(STOP, body.job_id) if isinstance(body, Stopped) else None
        if call is not None:
            self._calls.succeed(call, None)

    def question_answered(self, frame: Envelope, _: str | bytes) -> None:
        """Take an `x-vendor.arcp-trio.answered`: the answer counts, and is stored."""
        body = read_payload(frame, QuestionAnswered)
        if isinstance(body, QuestionAnswered):
            call = self._calls.answered(ANSWER, body.request_id, body.job_id)
            if call is not None:
                self._calls.succeed(call, None)

    def token_made(self, frame: Envelope, _: str | bytes) -> None:
        """Take an `x-vendor.arcp-trio.token_made`."""
        body = read_payload(frame, TokenMade)
        call = self._calls.answered(TOKEN, _request_id(frame))
        if call is not None:
            if isinstance(body, TokenMade):
                self._calls.succeed(call, body)
            else:
                self._calls.fail(call, body)

    def job_error(self, frame: Envelope, text: str | bytes) -> None:
        """Take a `job.error`. It ends its job; some runtimes refuse a call with it instead."""
        call = self._refused_by_job_error(frame)
        if call is None:
            self._jobs.error(frame, text)
        else:
            self._calls.fail(call, error_from_payload(frame.payload))

    def _refused_by_job_error(self, frame: Envelope) -> Call[Any] | None:
        code, job_id = str(frame.payload.get("code")), frame.job_id
        if job_id is None or job_id not in self._jobs.running or code == _REFUSES_SUBMIT:
            return self._calls.oldest(SUBMIT)
        return self._calls.about(CANCEL, job_id) if code in _REFUSES_CANCEL else None

    def session_error(self, frame: Envelope, error: ArcpError, *, is_refusal: bool) -> bool:
        """Take a `session.error` if it is about a call or a subscription; return whether it is."""
        job_id = frame.job_id or text_in(frame.payload.get("job_id"))
        call = self._calls.refused(_request_id(frame), job_id, is_refusal=is_refusal)
        observed = self._jobs.running.get(job_id or "")
        if call is not None:
            self._calls.fail(call, error)
        elif observed is not None and not observed.own:
            self._jobs.lose(observed, error)
        else:
            return False
        return True


def _request_id(frame: Envelope) -> str | None:
    return text_in(frame.payload.get("request_id"))
