"""How a job ends: the outcome, its terminal message, and what the log tells (§7.3)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from arcp_trio.store.records import Status
from arcp_trio.wire.errors import (
    CODES,
    ArcpError,
    InternalError,
    JobCancelled,
    JobTimedOut,
    error_from_payload,
)
from arcp_trio.wire.json import MAX_DEPTH, dumps
from arcp_trio.wire.messages import ErrorBrief, JobErrorBody, JobResult, payload_bytes
from arcp_trio.wire.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from arcp_trio.runtime.job.job import Job

log = logging.getLogger(__name__)

_MOST_BRIEF: Final = 200  # characters


class Outcome(msgspec.Struct, frozen=True):
    """A job's one terminal, decided but not written yet (§7.3)."""

    status: Status
    result: bytes = b"null"
    """The result of a success, as JSON."""
    error: ArcpError | None = None
    """Why the job did not succeed."""
    result_id: str | None = None
    """The id of the chunks, if the result was streamed (§8.4)."""
    result_size: int | None = None
    summary: str | None = None
    """What the agent says of the streamed result (§8.4)."""

    @property
    def type(self) -> str:
        """The terminal message's type."""
        return "job.result" if self.error is None else "job.error"

    @property
    def error_brief(self) -> bytes | None:
        """Why the job did not succeed, as a listing tells it; None for a success."""
        if self.error is None:
            return None
        message = one_line(self.error.message, _MOST_BRIEF)
        return payload_bytes(ErrorBrief(code=self.error.code, message=message))

    def refusal(self) -> ArcpError:
        """Return the error for what comes too late for the job.

        A fresh one each time: the agent may raise it, catch it and change it.
        """
        if self.error is None:
            return InternalError("the job has ended")
        return error_from_payload(self.error.payload())

    def payload(self, completed_at: str) -> bytes:
        """Encode the terminal message's payload."""
        if self.result_id is not None:
            return payload_bytes(
                JobResult(
                    result_id=self.result_id,
                    result_size=self.result_size,
                    summary=self.summary,
                    completed_at=completed_at,
                )
            )
        if self.error is None:
            return b'{"final_status":"success","result":%b,"completed_at":%b}' % (
                self.result,
                dumps(completed_at),
            )
        return payload_bytes(JobErrorBody.of(self.error, completed_at=completed_at))


def succeeded(result: bytes) -> Outcome:
    """Return the outcome of an agent that has returned `result`, which is JSON."""
    return Outcome(Status.SUCCESS, result)


def streamed(result_id: str, size: int, summary: str | None) -> Outcome:
    """Return the outcome of an agent that has streamed `size` bytes and returned nothing."""
    return Outcome(Status.SUCCESS, result_id=result_id, result_size=size, summary=summary)


def failed(error: ArcpError) -> Outcome:
    """Return the outcome of an agent that raised, or of a job that the runtime had to end.

    An error of another job that was cancelled or timed out does not make this job cancelled or
    timed out; and a code that is not of §12 says nothing to a client.
    """
    if error.code not in CODES or error.code in (JobCancelled.code, JobTimedOut.code):
        error = InternalError(error.message, details=error.details)
    return Outcome(Status.ERROR, error=error)


def raised(error: ArcpError, most_bytes: int) -> Outcome | None:
    """Return the outcome of an agent that raised `error`; None if no frame can hold the error."""
    sound = sound_copy(error, most_bytes)
    return None if sound is None else failed(sound)


def sound_copy(error: ArcpError, most_bytes: int) -> ArcpError | None:
    """Return a copy that the agent cannot change; None if the agent has spoilt the error already.

    An agent may put anything into an error's fields.
    """
    try:
        payload = error.payload()
        fields = (error.message, error.retryable, error.details)
        sound = tuple(map(type, fields)) == (str, bool, dict) and bool(error.message)
        # An event has the error one level deeper than a terminal has it.
        fits = sound and len(dumps(payload, max_depth=MAX_DEPTH - 3)) <= most_bytes
    except Exception:  # noqa: BLE001 - the class may be the agent's own
        return None
    return error_from_payload(payload) if fits else None


def cancelled(reason: str | None, *, stopped_by: str | None = None) -> Outcome:
    """Return the outcome of a job that was cancelled (§7.4), or that a principal has stopped."""
    details: dict[str, str] = {}
    if stopped_by is not None:
        details["stopped_by"] = stopped_by
        if reason:
            details["reason"] = reason
    error = JobCancelled(reason or "the job was cancelled", details=details)
    return Outcome(Status.CANCELLED, error=error)


def timed_out(seconds: float) -> Outcome:
    """Return the outcome of a job that ran for longer than its submit allowed."""
    return Outcome(Status.TIMED_OUT, error=JobTimedOut(f"the job ran longer than {seconds:g} s"))


def log_end(job: Job, outcome: Outcome, budget_left: Mapping[str, Decimal]) -> None:
    """Tell the log and the tracer how a job has ended."""
    code = None if outcome.error is None else outcome.error.code
    seconds = round(trio.current_time() - job.drafted_at, 3)
    # First what a line that is cut to the width of a terminal has to show.
    ended = {"agent": job.agent.ref, "outcome": outcome.status, "code": code}
    facts = {**ended, "seconds": seconds, **job.facts, "trace_id": job.trace_id}
    # Thousands of measurements would hide the other jobs here, as in listings.
    log.log(logging.DEBUG if job.spec.forget else logging.INFO, "job ended", extra=facts)
    attributes: dict[str, str | list[str]] = {"arcp.job.outcome": outcome.status}
    if budget_left:
        left = [f"{currency}:{amount}" for currency, amount in budget_left.items()]
        attributes["arcp.budget.remaining"] = left
    job.span.end(attributes, code=code)
