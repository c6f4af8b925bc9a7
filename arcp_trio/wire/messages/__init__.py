"""Every message as a class of its payload, and the tables for reading them (§6 to §8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

import attrs

from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import InvalidRequest, clip
from arcp_trio.wire.json import MAX_DEPTH, dumps
from arcp_trio.wire.messages.job import (
    Accepted,
    AnswerQuestion,
    Cancel,
    Cancelled,
    JobErrorBody,
    JobEvent,
    JobResult,
    LeaseConstraints,
    QuestionAnswered,
    Stop,
    Stopped,
    Submit,
    SubmitExtras,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from arcp_trio.wire.messages.listing import (
    ErrorBrief,
    JobBrief,
    JobEntry,
    JobFilter,
    JobListing,
    ListJobs,
    ProgressBrief,
    WaitingFor,
)
from arcp_trio.wire.messages.session import (
    Ack,
    AgentInfo,
    Auth,
    Bye,
    ClientCapabilities,
    Close,
    Closed,
    ErrorBody,
    Hello,
    MakeToken,
    PeerInfo,
    Ping,
    Pong,
    RuntimeCapabilities,
    SessionResume,
    TokenMade,
    Welcome,
    WelcomeExtras,
)
from arcp_trio.wire.payloads import read, to_json

__all__ = [
    "TO_CLIENT",
    "TO_RUNTIME",
    "Accepted",
    "Ack",
    "AgentInfo",
    "AnswerQuestion",
    "Auth",
    "Bye",
    "Cancel",
    "Cancelled",
    "ClientCapabilities",
    "Close",
    "Closed",
    "ErrorBody",
    "ErrorBrief",
    "Hello",
    "JobBrief",
    "JobEntry",
    "JobErrorBody",
    "JobEvent",
    "JobFilter",
    "JobListing",
    "JobResult",
    "LeaseConstraints",
    "ListJobs",
    "MakeToken",
    "Message",
    "PeerInfo",
    "Ping",
    "Pong",
    "ProgressBrief",
    "QuestionAnswered",
    "RuntimeCapabilities",
    "SessionResume",
    "Stop",
    "Stopped",
    "Submit",
    "SubmitExtras",
    "Subscribe",
    "Subscribed",
    "TokenMade",
    "UnknownType",
    "Unsubscribe",
    "WaitingFor",
    "Welcome",
    "WelcomeExtras",
    "decode_payload",
    "parse",
    "payload_bytes",
]

Message: TypeAlias = (
    Hello
    | SessionResume
    | Ping
    | Pong
    | Ack
    | Close
    | Bye
    | ListJobs
    | Submit
    | Cancel
    | Stop
    | AnswerQuestion
    | MakeToken
    | Subscribe
    | Unsubscribe
)
"""The messages that a client may send to a runtime."""

_TO_RUNTIME: Final[tuple[type[Message], ...]] = (
    Hello,
    SessionResume,
    Ping,
    Pong,
    Ack,
    Close,
    Bye,
    ListJobs,
    Submit,
    Cancel,
    Stop,
    AnswerQuestion,
    MakeToken,
    Subscribe,
    Unsubscribe,
)
_TO_CLIENT: Final = (
    Welcome,
    ErrorBody,
    Ping,
    Pong,
    Closed,
    Bye,
    JobListing,
    Accepted,
    Cancelled,
    Stopped,
    QuestionAnswered,
    TokenMade,
    JobEvent,
    JobResult,
    JobErrorBody,
    Subscribed,
)

Table: TypeAlias = Mapping[str, type[Any]]

TO_RUNTIME: Final[Mapping[str, type[Message]]] = {cls.type: cls for cls in _TO_RUNTIME}
TO_CLIENT: Final[Table] = {cls.type: cls for cls in _TO_CLIENT}

# Peers put these on the envelope, in the payload, or in both. `session.resume` is not here: on a
# connection that has a new session already, its envelope may name the new session.
_ALSO_ON_ENVELOPE: Final[Mapping[type[Any], str]] = {
    Welcome: "session_id",
    ErrorBody: "job_id",
    Accepted: "job_id",
    Cancel: "job_id",
    Cancelled: "job_id",
    Stop: "job_id",
    Stopped: "job_id",
    AnswerQuestion: "job_id",
    QuestionAnswered: "job_id",
    Subscribe: "job_id",
    Subscribed: "job_id",
    Unsubscribe: "job_id",
}


class UnknownType(InvalidRequest):
    """A `session.*` or `job.*` message that the specification lacks in this direction."""


def parse(envelope: Envelope) -> Message | None:
    """Read a client's message; None for a type outside `session.*` and `job.*` (§5: ignored)."""
    return cast("Message | None", decode_payload(envelope, TO_RUNTIME))


def decode_payload(envelope: Envelope, table: Table) -> object:
    """Read the payload as the class that the table has for the envelope's type.

    Unknown fields are ignored. The result is None for a type of another namespace, such as
    another vendor's.

    Raises:
        UnknownType: the table has no such type of `session.*` or `job.*`.
        InvalidRequest: names every field that is wrong.
    """
    cls = table.get(envelope.type)
    if cls is None:
        if envelope.type.startswith(("session.", "job.")):
            raise UnknownType(f"unknown message type {clip(repr(envelope.type))}")
        return None
    payload = envelope.payload
    name = _ALSO_ON_ENVELOPE.get(cls)
    if name is not None and payload.get(name) is None:
        outer = getattr(envelope, name)
        payload = payload if outer is None else {**payload, name: outer}
    return read(cls, payload)


def payload_bytes(message: attrs.AttrsInstance) -> bytes:
    """Encode the payload of a message; fields that are None are left out."""
    return dumps(to_json(message), max_depth=MAX_DEPTH - 1)
