"""Payloads of the `session.*` messages (§6)."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final

import attrs

from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.json import JsonObject, JsonValue
from arcp_trio.wire.questions import QuestionBody
from arcp_trio.wire.schema import (
    KEEP_NULL,
    VENDOR,
    WIRE_NAME,
    Identifier,
    NonEmpty,
    Remark,
    Rule,
    always,
)
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
class PeerInfo:
    """The program of a peer: the `client` of a hello, the `runtime` of a welcome."""

    name: Identifier
    version: Remark | None = None


@attrs.frozen(kw_only=True)
class Auth:
    """The credentials of a hello (§6.1); the handshake judges whether one is missing."""

    scheme: str | None = None
    token: str | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class ClientCapabilities:
    """The capabilities of a client (§6.2)."""

    encodings: list[str] | None = None
    features: list[str] | None = None
    agents: JsonValue = None


@attrs.frozen(kw_only=True)
class SessionResume:
    """A request to resume a session (§6.3): a first frame, or the `resume` of a hello."""

    type: ClassVar[str] = "session.resume"

    resume_token: str = attrs.field(repr=False)
    last_event_seq: int = 0
    session_id: str | None = None
    auth: Auth | None = None


@attrs.frozen(kw_only=True)
class Hello:
    """The first frame of a connection (§6.2)."""

    type: ClassVar[str] = "session.hello"

    client: PeerInfo
    auth: Auth | None = None
    capabilities: ClientCapabilities | None = None
    resume: SessionResume | None = None
    # Some clients put these two here rather than in a `resume` block.
    resume_token: str | None = attrs.field(default=None, repr=False)
    last_event_seq: int | None = None

    @property
    def features(self) -> list[str]:
        """The features that the client offers; none if the hello does not name any."""
        return (self.capabilities and self.capabilities.features) or []

    @property
    def resumption(self) -> SessionResume | None:
        """The resume that this hello asks for, in either form."""
        if self.resume is not None:
            return self.resume
        if self.resume_token is None:
            return None
        return SessionResume(
            resume_token=self.resume_token, last_event_seq=self.last_event_seq or 0
        )


@attrs.frozen(kw_only=True)
class AgentInfo:
    """One agent in the inventory of a runtime (§6.2)."""

    name: NonEmpty
    versions: list[str] | None = None
    default: str | None = None


@attrs.frozen(kw_only=True)
class RuntimeCapabilities:
    """The capabilities of a runtime. Without `agent_versions`, agents are bare names (§7.5)."""

    encodings: list[str] | None = None
    features: list[str] | None = None
    agents: list[AgentInfo | str] | None = None


@attrs.frozen(kw_only=True)
class Welcome:
    """The answer to a hello (§6.2)."""

    type: ClassVar[str] = "session.welcome"

    session_id: str
    runtime: PeerInfo | None = None
    resume_token: str | None = attrs.field(default=None, repr=False)
    resume_window_sec: float | None = None
    heartbeat_interval_sec: float | None = None
    accepted_at: str | None = None
    capabilities: RuntimeCapabilities | None = None


@attrs.frozen(kw_only=True)
class ErrorBody:
    """A request was refused, or the session ends (§12)."""

    type: ClassVar[str] = "session.error"

    code: str
    message: str = ""
    retryable: bool = False
    request_id: str | None = None
    job_id: str | None = None
    details: JsonObject | None = None

    @classmethod
    def of(
        cls, error: ArcpError, *, request_id: str | None = None, job_id: str | None = None
    ) -> ErrorBody:
        """Return the answer to a request that is refused with this error."""
        return cls(**error.payload(), request_id=request_id, job_id=job_id)


@attrs.frozen(kw_only=True)
class Ping:
    """A heartbeat, which the peer answers (§6.4)."""

    type: ClassVar[str] = "session.ping"

    nonce: Remark
    sent_at: str | None = None


@attrs.frozen(kw_only=True)
class Pong:
    """The answer to a ping (§6.4)."""

    type: ClassVar[str] = "session.pong"

    ping_nonce: str
    received_at: str | None = None


@attrs.frozen(kw_only=True)
class Ack:
    """The client has processed all frames up to this number (§6.5)."""

    type: ClassVar[str] = "session.ack"

    last_processed_seq: int


@attrs.frozen(kw_only=True)
class Close:
    """The client leaves the session; its jobs go on (§6.7)."""

    type: ClassVar[str] = "session.close"

    reason: Remark | None = None


@attrs.frozen(kw_only=True)
class Bye:
    """The `session.close` of ARCP 1.0, which is not answered."""

    type: ClassVar[str] = "session.bye"

    reason: Remark | None = None


@attrs.frozen(kw_only=True)
class Closed:
    """The answer to `session.close` (§6.7)."""

    type: ClassVar[str] = "session.closed"

    reason: str | None = None


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
    """Its last event in words: one line of plain text."""


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
