"""The errors of §12: one class for each code, and their form on the wire."""

# ruff: noqa: N818 - the classes have the names of their codes

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, Self

from arcp_trio.wire.plain_text import one_line

_QUOTE_LIMIT: Final = 80  # characters of a peer's own text that an error message repeats

# §12: a naive retry of the last two fails identically; an internal error is always retryable.
_FORCED_RETRYABLE: Final = {
    "INTERNAL_ERROR": True,
    "LEASE_EXPIRED": False,
    "BUDGET_EXHAUSTED": False,
}
_RETRYABLE_BY_DEFAULT: Final = frozenset({"INTERNAL_ERROR", "TIMEOUT", "HEARTBEAT_LOST"})


def clip(text: str, limit: int = _QUOTE_LIMIT) -> str:
    """Shorten text that came from outside: no message repeats a hostile name of 10 kB."""
    return text if len(text) <= limit else f"{text[:limit]}…"


class ArcpError(Exception):
    """An error with a code of §12.

    `code` is given only for a code that no class has, as a peer of a newer version may send it.
    The details are copied in and out, so that errors never share a mutable object.
    """

    code: str = "INTERNAL_ERROR"
    job_id: str | None = None
    """The job that the error is about, if a client knows."""

    def __init__(
        self,
        message: str,
        *,
        details: Mapping[str, object] | None = None,
        retryable: bool | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if retryable is None:
            retryable = self.code in _RETRYABLE_BY_DEFAULT
        self.retryable: bool = _FORCED_RETRYABLE.get(self.code, retryable)
        self.details: dict[str, Any] = copy.deepcopy(dict(details or {}))

    def payload(self) -> dict[str, Any]:
        """Return the error in the form of §12, as a new object."""
        payload: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "retryable": self.retryable,
        }
        if self.details:
            payload["details"] = copy.deepcopy(self.details)
        return payload


class PermissionDenied(ArcpError):
    """The lease, or the principal's authority, does not cover the operation."""

    code = "PERMISSION_DENIED"


class ApprovalNeeded(PermissionDenied):
    """The lease allows the operation if a person agrees to it, and nobody has so far."""


class LeaseSubsetViolation(ArcpError):
    """A delegation asked for more than its parent has (§9.4)."""

    code = "LEASE_SUBSET_VIOLATION"


class JobNotFound(ArcpError):
    """There is no such job, or the principal may not know of it."""

    code = "JOB_NOT_FOUND"


class DuplicateKey(ArcpError):
    """An idempotency key was used again with other parameters (§7.2)."""

    code = "DUPLICATE_KEY"


class AgentNotAvailable(ArcpError):
    """No agent of this name is registered."""

    code = "AGENT_NOT_AVAILABLE"


class AgentVersionNotAvailable(ArcpError):
    """The agent exists, but not in this version (§7.5)."""

    code = "AGENT_VERSION_NOT_AVAILABLE"


class JobCancelled(ArcpError):
    """The job ended because it was cancelled (§7.4)."""

    code = "CANCELLED"


class JobTimedOut(ArcpError):
    """The job ran longer than its `max_runtime_sec`."""

    code = "TIMEOUT"


class ResumeWindowExpired(ArcpError):
    """The session is gone, or the part of its stream that a resume asks for (§6.3)."""

    code = "RESUME_WINDOW_EXPIRED"


class HeartbeatLost(ArcpError):
    """The peer was silent for two heartbeat intervals (§6.4)."""

    code = "HEARTBEAT_LOST"


class LeaseExpired(ArcpError):
    """The lease's `expires_at` has passed (§9.5)."""

    code = "LEASE_EXPIRED"


class BudgetExhausted(ArcpError):
    """A `cost.budget` counter is used up (§9.6)."""

    code = "BUDGET_EXHAUSTED"


class InvalidRequest(ArcpError):
    """A frame is malformed, or a message is not as its schema asks."""

    code = "INVALID_REQUEST"


class Unauthenticated(ArcpError):
    """The token is missing or not valid (§6.1)."""

    code = "UNAUTHENTICATED"


class InternalError(ArcpError):
    """The runtime has a fault, or one of its limits was hit."""

    code = "INTERNAL_ERROR"


CODES: Final[Mapping[str, type[ArcpError]]] = {
    cls.code: cls
    for cls in (
        PermissionDenied,
        LeaseSubsetViolation,
        JobNotFound,
        DuplicateKey,
        AgentNotAvailable,
        AgentVersionNotAvailable,
        JobCancelled,
        JobTimedOut,
        ResumeWindowExpired,
        HeartbeatLost,
        LeaseExpired,
        BudgetExhausted,
        InvalidRequest,
        Unauthenticated,
        InternalError,
    )
}
"""The fifteen codes of §12, each with its class."""


class JobFailed(ArcpError):
    """A job ended in `error`; `code` is that of its terminal message."""


class Unanswered(ArcpError):
    """Nobody has answered a question in time."""

    code = "TIMEOUT"

    @classmethod
    def to(cls, prompt: str) -> Self:
        """Return the error for this question."""
        return cls(f"nobody has answered in time: {one_line(prompt, _QUOTE_LIMIT)}")


class JobError(InternalError):
    """An error of an agent whose message the client may read: it becomes the job's error."""

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, details=details)


class InvalidInput(InvalidRequest):
    """An agent's refusal of its input: it becomes the job's error. A retry would fail again."""

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, details=details)


def error_from_payload(payload: Mapping[str, Any]) -> ArcpError:
    """Return the exception for an error that a peer sent, however malformed its payload is."""
    code, message = payload.get("code"), payload.get("message")
    retryable = payload.get("retryable")
    details: dict[str, Any] | None = payload.get("details")
    if not isinstance(code, str) or not code:
        code = InternalError.code
    cls = CODES.get(code, ArcpError)
    return cls(
        message if isinstance(message, str) and message else code,
        details=details if isinstance(details, dict) else None,
        retryable=retryable if isinstance(retryable, bool) else None,
        code=code,
    )
