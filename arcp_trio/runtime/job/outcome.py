"""How a job ends."""

from __future__ import annotations

import attrs

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
from arcp_trio.wire.messages import JobErrorBody, JobResult, payload_bytes


@attrs.frozen
class Outcome:
    """A job's one terminal, decided but not yet said (§7.3)."""

    status: Status
    result: bytes = b"null"
    """JSON, when it is a success."""
    error: ArcpError | None = None
    result_id: str | None = None
    """Of chunks, when the result was streamed (§8.4)."""
    result_size: int | None = None

    @property
    def type(self) -> str:
        """The terminal message's type."""
        return "job.result" if self.error is None else "job.error"

    def payload(self, completed_at: str) -> bytes:
        """The terminal message's payload."""
        if self.result_id is not None:
            return payload_bytes(
                JobResult(
                    result_id=self.result_id,
                    result_size=self.result_size,
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
    """The agent returned this."""
    return Outcome(Status.SUCCESS, result)


def streamed(result_id: str, size: int) -> Outcome:
    """The agent has streamed these chunks, so many bytes, and returned nothing."""
    return Outcome(Status.SUCCESS, result_id=result_id, result_size=size)


def failed(error: ArcpError) -> Outcome:
    """The agent raised, or the runtime had to end the job.

    A job that merely met somebody else's cancellation or timeout was not cancelled or timed out
    itself; and a code that is not of §12 says nothing to a client.
    """
    if error.code not in CODES or error.code in (JobCancelled.code, JobTimedOut.code):
        error = InternalError(error.message, details=error.details)
    return Outcome(Status.ERROR, error=error)


def raised(error: ArcpError, most_bytes: int) -> Outcome | None:
    """The agent raised an error of its own; None if that is none a frame can hold."""
    sound = sound_copy(error, most_bytes)
    return None if sound is None else failed(sound)


def sound_copy(error: ArcpError, most_bytes: int) -> ArcpError | None:
    """An agent may go on changing its error, and can spoil it in every way: None if it has."""
    try:
        payload = error.payload()
        fields = (error.message, error.retryable, error.details)
        sound = tuple(map(type, fields)) == (str, bool, dict) and bool(error.message)
        # A body, and an error in it: one level more than a terminal has.
        fits = sound and len(dumps(payload, max_depth=MAX_DEPTH - 3)) <= most_bytes
    except Exception:  # noqa: BLE001 - the agent's class, and whatever it has put there
        return None
    return error_from_payload(payload) if fits else None


def cancelled(reason: str | None) -> Outcome:
    """The client wanted it so (§7.4)."""
    return Outcome(Status.CANCELLED, error=JobCancelled(reason or "the job was cancelled"))


def timed_out(seconds: float) -> Outcome:
    """It ran longer than its submit allowed."""
    return Outcome(
        Status.TIMED_OUT, error=JobTimedOut(f"the job ran longer than {seconds:g} seconds")
    )
