"""Every message of §6 to §8 as a class of its payload, and the tables to read them by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import InvalidRequest, clip
from arcp_trio.wire.json import MAX_DEPTH, dumps
from arcp_trio.wire.messages.job import (
    Accepted,
    Cancel,
    Cancelled,
    JobErrorBody,
    JobEvent,
    JobResult,
    LeaseConstraints,
    Submit,
    Subscribe,
    Subscribed,
    Unsubscribe,
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
    JobEntry,
    JobFilter,
    JobListing,
    ListJobs,
    PeerInfo,
    Ping,
    Pong,
    RuntimeCapabilities,
    SessionResume,
    Welcome,
)
from arcp_trio.wire.payloads import read, to_json

__all__ = [
    "TO_CLIENT",
    "TO_RUNTIME",
    "Accepted",
    "Ack",
    "AgentInfo",
    "Auth",
    "Bye",
    "Cancel",
    "Cancelled",
    "ClientCapabilities",
    "Close",
    "Closed",
    "ErrorBody",
    "Hello",
    "JobEntry",
    "JobErrorBody",
    "JobEvent",
    "JobFilter",
    "JobListing",
    "JobResult",
    "LeaseConstraints",
    "ListJobs",
    "Message",
    "PeerInfo",
    "Ping",
    "Pong",
    "RuntimeCapabilities",
    "SessionResume",
    "Submit",
    "Subscribe",
    "Subscribed",
    "UnknownType",
    "Unsubscribe",
    "Welcome",
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
    | Subscribe
    | Unsubscribe
)
"""What a client may send to a runtime."""

_TO_RUNTIME: tuple[type[Message], ...] = (
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
    Subscribe,
    Unsubscribe,
)
_TO_CLIENT = (
    Welcome,
    ErrorBody,
    Ping,
    Pong,
    Closed,
    Bye,
    JobListing,
    Accepted,
    Cancelled,
    JobEvent,
    JobResult,
    JobErrorBody,
    Subscribed,
)

Table: TypeAlias = Mapping[str, type[Any]]

TO_RUNTIME: Mapping[str, type[Message]] = {cls.type: cls for cls in _TO_RUNTIME}
TO_CLIENT: Table = {cls.type: cls for cls in _TO_CLIENT}

# Peers put these on the envelope, in the payload, or in both. A resume is not here: sent on a
# connection that has a fresh session, its envelope may name that one.
_ALSO_ON_ENVELOPE: Mapping[type[Any], str] = {
    Welcome: "session_id",
    ErrorBody: "job_id",
    Accepted: "job_id",
    Cancel: "job_id",
    Cancelled: "job_id",
    Subscribe: "job_id",
    Subscribed: "job_id",
    Unsubscribe: "job_id",
}


class UnknownType(InvalidRequest):
    """A `session.*` or `job.*` message that the specification does not know in this direction."""


def parse(envelope: Envelope) -> Message | None:
    """Read a client's message; None for a type outside `session.*` and `job.*`, to be ignored."""
    return cast("Message | None", decode_payload(envelope, TO_RUNTIME))


def decode_payload(envelope: Envelope, table: Table) -> object:
    """Read the payload by the table's class for the envelope's type.

    `InvalidRequest` names every field that is wrong; unknown fields are ignored. Types of other
    namespaces (`x-vendor.*` among them) are no error: the answer is None.
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


def payload_bytes(message: object) -> bytes:
    """Encode a message's payload; absent fields are left out rather than null."""
    return dumps(to_json(message), max_depth=MAX_DEPTH - 1)
