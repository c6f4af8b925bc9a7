"""Payloads of the `session.*` messages (§6)."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.json import JsonObject, JsonValue
from arcp_trio.wire.rules import (
    VENDOR,
    WIRE_NAME,
    Bearer,
    Identifier,
    NonEmpty,
    Remark,
)


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


DURABLE: Final = f"{VENDOR}.durable"
"""The field by which this project's runtimes say which agents are durable."""


@attrs.frozen(kw_only=True)
class AgentInfo:
    """One agent in the inventory of a runtime (§6.2)."""

    name: NonEmpty
    versions: list[str] | None = None
    default: str | None = None
    durable: list[str] | None = attrs.field(default=None, metadata={WIRE_NAME: DURABLE})
    """The versions whose jobs survive the runtime; None without such versions."""


@attrs.frozen(kw_only=True)
class RuntimeCapabilities:
    """The capabilities of a runtime. Without `agent_versions`, agents are bare names (§7.5)."""

    encodings: list[str] | None = None
    features: list[str] | None = None
    agents: list[AgentInfo | str] | None = None


@attrs.frozen(kw_only=True)
class WelcomeExtras:
    """What a runtime of this project says in its welcome beyond §6.2."""

    input_schemas: dict[str, JsonObject] | None = None
    """What the inputs of agents must be, in JSON Schema, by `name@version`."""
    store: str | None = None
    """Where it keeps jobs and sessions, such as `SQLite`."""
    nodes: list[str] | None = None
    """The names of its nodes, if several share a store."""


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
    extras: WelcomeExtras | None = attrs.field(default=None, metadata={WIRE_NAME: VENDOR})


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
class MakeToken:
    """A request for a token with which one can look at jobs, or for a code that is good once.

    It is a message of this project.
    """

    type: ClassVar[str] = "x-vendor.arcp-trio.token"

    seconds: float
    """How long it is to be good for."""
    job_id: Identifier | None = None
    """The one job that may be looked at; without it, all of the principal's."""
    replaces: Bearer | None = attrs.field(default=None, repr=False)
    """The token of the client in place of which the code is good, once."""


@attrs.frozen(kw_only=True)
class TokenMade:
    """The answer with the token."""

    type: ClassVar[str] = "x-vendor.arcp-trio.token_made"

    request_id: str | None = None
    token: str = attrs.field(repr=False)
    expires_at: str


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
