"""The errors of §12."""

from __future__ import annotations

import pytest

from arcp_trio.wire import errors
from arcp_trio.wire.errors import CODES, ArcpError, JobError, JobFailed, error_from_payload

RETRYABLE = {
    "PERMISSION_DENIED": False,
    "LEASE_SUBSET_VIOLATION": False,
    "JOB_NOT_FOUND": False,
    "DUPLICATE_KEY": False,
    "AGENT_NOT_AVAILABLE": False,
    "AGENT_VERSION_NOT_AVAILABLE": False,
    "CANCELLED": False,
    "TIMEOUT": True,
    "RESUME_WINDOW_EXPIRED": False,
    "HEARTBEAT_LOST": True,
    "LEASE_EXPIRED": False,
    "BUDGET_EXHAUSTED": False,
    "INVALID_REQUEST": False,
    "UNAUTHENTICATED": False,
    "INTERNAL_ERROR": True,
}


@pytest.mark.spec("12-1")
def test_there_is_a_class_for_each_code() -> None:
    """Each of the fifteen codes of §12 has a class, and there is no other class with a code."""
    assert set(CODES) == set(RETRYABLE)
    assert all(cls.code == code for code, cls in CODES.items())


@pytest.mark.spec("12-8", "1.0/12-1")
@pytest.mark.parametrize("code", RETRYABLE)
def test_every_payload_says_whether_to_retry(code: str) -> None:
    """A payload has code, message and the code's retryable, and details unless they are empty."""
    assert CODES[code]("words").payload() == {
        "code": code,
        "message": "words",
        "retryable": RETRYABLE[code],
    }


@pytest.mark.spec("12-9", "12-7")
def test_three_codes_leave_no_choice() -> None:
    """Expired leases and spent budgets are never retryable, internal errors always are."""
    assert errors.LeaseExpired("x", retryable=True).retryable is False
    assert errors.BudgetExhausted("x", retryable=True).retryable is False
    assert errors.InternalError("x", retryable=False).retryable is True
    assert errors.JobFailed("x", code="LEASE_EXPIRED", retryable=True).retryable is False
    assert errors.JobTimedOut("x", retryable=False).retryable is False


def test_details_are_never_shared() -> None:
    """Neither the giver nor a reader of the details can change an error's later replies."""
    given = {"limit": {"key": "jobs"}}
    first, second = (
        errors.InternalError("x", details=given),
        errors.InternalError("x", details=given),
    )
    given["limit"]["key"] = "changed by the giver"
    first.details["more"] = 1
    first.payload()["details"]["limit"]["key"] = "changed by a reader"
    assert second.payload()["details"] == {"limit": {"key": "jobs"}}
    assert first.payload()["details"] == {"limit": {"key": "jobs"}, "more": 1}


@pytest.mark.parametrize("code", RETRYABLE)
def test_a_payload_becomes_the_class_of_its_code(code: str) -> None:
    """A client gets an error of the class that the runtime raised."""
    sent = CODES[code]("words", details={"a": 1})
    met = error_from_payload(sent.payload())
    assert type(met) is CODES[code]
    assert met.payload() == sent.payload()


def test_an_unknown_code_keeps_what_the_wire_said() -> None:
    """An unknown code becomes an ArcpError with the code and the retryable of the payload."""
    met = error_from_payload({"code": "QUOTA", "message": "m", "retryable": True, "details": None})
    assert type(met) is ArcpError
    assert (met.code, met.message, met.retryable, met.details) == ("QUOTA", "m", True, {})


@pytest.mark.parametrize(
    "payload", [{}, {"code": 5, "message": [], "retryable": "yes", "details": 3}, {"code": ""}]
)
def test_a_sloppy_payload_is_still_an_error(payload: dict[str, object]) -> None:
    """Any payload in place of an error becomes an ArcpError."""
    met = error_from_payload(payload)
    assert (met.code, met.retryable, met.details) == ("INTERNAL_ERROR", True, {})
    assert met.message


def test_an_agents_own_words() -> None:
    """JobError takes message and details, and has the code INTERNAL_ERROR."""
    error = JobError("no such repository", {"repo": "x"})
    assert error.payload() == {
        "code": "INTERNAL_ERROR",
        "message": "no such repository",
        "retryable": True,
        "details": {"repo": "x"},
    }


def test_a_failed_job_carries_its_terminals_code() -> None:
    """JobFailed has the code with which the job ended."""
    assert JobFailed("x", code="LEASE_EXPIRED").code == "LEASE_EXPIRED"
    assert str(JobFailed("words")) == "words"
