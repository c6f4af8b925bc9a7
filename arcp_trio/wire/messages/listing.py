"""Payloads of the messages that list jobs (§6.6)."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final

import attrs

from arcp_trio.wire.event_bodies import Quantity
from arcp_trio.wire.json import JsonObject
from arcp_trio.wire.questions import QuestionBody
from arcp_trio.wire.rules import KEEP_NULL, VENDOR, WIRE_NAME, Rule, always
from arcp_trio.wire.timestamps import parse_rfc3339

_MAX_PAGE: Final = 1000  # jobs in one listing
_DEFAULT_PAGE: Final = 100


def _is_timestamp(text: str) -> bool:
    try:
        parse_rfc3339(text)
    except ValueError:
        return False
    return True


DecimalText = Annotated[
    str, Rule("an amount in decimal digits", re.compile(r"[0-9]+(\.[0-9]+)?").fullmatch)
]
Timestamp = Annotated[str, Rule("an RFC 3339 timestamp", _is_timestamp)]


@attrs.frozen(kw_only=True)
class JobFilter:
    """Which jobs a listing has (§6.6); an absent field does not restrict it."""

    status: list[str] | None = None
    agent: str | None = None
    created_after: Timestamp | None = None
    created_before: Timestamp | None = None


@attrs.frozen(kw_only=True)
class ListJobs:
    """A request for the jobs that the session's principal may observe (§6.6)."""

    type: ClassVar[str] = "session.list_jobs"

    filter: JobFilter = attrs.field(factory=JobFilter)
    limit: float | None = None
    cursor: str | None = None

    @property
    def page_size(self) -> int:
        """The most jobs that the answer may have: the limit, brought within bounds."""
        if self.limit is None:
            return _DEFAULT_PAGE
        return int(min(max(self.limit, 1), _MAX_PAGE))


@attrs.frozen(kw_only=True)
class ErrorBrief:
    """Why a job did not succeed, in one line."""

    code: str
    message: str


@attrs.frozen(kw_only=True)
class ProgressBrief:
    """How far a job is, as it said last."""

    current: Quantity
    total: Quantity | None = None


@attrs.frozen(kw_only=True)
class JobBrief:
    """What a listing of this project tells of a job beyond §6.6; what is not known is absent."""

    principal: str | None = None
    """The principal that submitted it, or the job at the top of its tree."""
    parent_id: str | None = None
    """The job that delegated to it (§10)."""
    started_at: str | None = None
    """When its agent was called."""
    finished_at: str | None = None
    error: ErrorBrief | None = None
    budget: dict[str, DecimalText] | None = None
    """What it was given to spend, by currency."""
    spent: dict[str, DecimalText] | None = None
    """What it and the jobs that it delegated to have spent, by currency."""
    last_event: str | None = None
    """What it asks people, or its last event, in words: one line of plain text."""
    progress: ProgressBrief | None = None
    """How far it is, while it runs."""
    node: str | None = None
    """The node at which it runs, if several share a store."""


@attrs.frozen(kw_only=True)
class WaitingFor:
    """What a job waits for that a client can bring about."""

    questions: list[QuestionBody]


@attrs.frozen(kw_only=True)
class JobEntry:
    """One job of a listing (§6.6)."""

    job_id: str
    agent: str
    status: str
    lease: JsonObject | None = None
    parent_job_id: str | None = attrs.field(default=None, metadata={KEEP_NULL: always})
    created_at: str | None = None
    submitted_at: str | None = None
    trace_id: str | None = None
    last_event_seq: int | None = None
    credentials: list[JsonObject] | None = None
    brief: JobBrief | None = attrs.field(default=None, metadata={WIRE_NAME: VENDOR})
    waiting: WaitingFor | None = attrs.field(
        default=None, metadata={WIRE_NAME: "x-vendor.arcp-trio.waiting"}
    )
    """Only if it waits."""


@attrs.frozen(kw_only=True)
class JobListing:
    """A page of a listing (§6.6)."""

    type: ClassVar[str] = "session.jobs"

    request_id: str | None = None
    jobs: list[JobEntry]
    next_cursor: str | None = attrs.field(default=None, metadata={KEEP_NULL: always})
