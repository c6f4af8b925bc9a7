"""Opens a session on a connection: `session.hello` and its answer (§6.2), or a resume (§6.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import attrs

from arcp_trio.client.dialects import RuntimeDialect, recognise
from arcp_trio.client.errors import ProtocolError
from arcp_trio.transport.base import Transport, TransportClosed
from arcp_trio.version import __version__
from arcp_trio.wire import envelope
from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import clip, error_from_payload
from arcp_trio.wire.json import (
    JsonLike,
    JsonObject,
    JsonValue,
    dumps,
    is_object,
    list_in,
    object_in,
    text_in,
)
from arcp_trio.wire.messages import AgentInfo
from arcp_trio.wire.messages.session import DURABLE
from arcp_trio.wire.rules import VENDOR

CLIENT_NAME: Final = "arcp_trio"
MAX_WELCOME_VALUES: Final = 100_000
"""JSON values of a welcome, at most: each of them takes many times its size on the wire."""
MIN_HEARTBEAT_SECONDS: Final = 1.0
"""The shortest interval between pings, even if the runtime asks for a shorter one."""


@attrs.frozen(kw_only=True)
class Greeting:
    """The contents of a `session.welcome`. Fields that the runtime left out are None or empty."""

    session_id: str
    resume_token: str | None = attrs.field(repr=False)
    resume_window: float | None
    heartbeat_interval: float | None
    features: frozenset[str]
    """The features in effect: those that both sides have."""
    agents: tuple[AgentInfo, ...]
    input_schemas: Mapping[str, JsonObject]
    dialect: RuntimeDialect


@attrs.frozen(kw_only=True)
class Resumption:
    """A session to resume, and the number after which it goes on."""

    session_id: str
    token: str = attrs.field(repr=False)
    after_seq: int


def hello(
    token: str | None, features: Iterable[str], resumption: Resumption | None = None
) -> bytes:
    """Make a `session.hello`. It asks for a resume in both of the forms that runtimes read."""
    payload: dict[str, JsonLike] = {
        "client": {"name": CLIENT_NAME, "version": __version__},
        "capabilities": {"encodings": ["json"], "features": list(features)},
    }
    if token is not None:
        payload["auth"] = {"scheme": "bearer", "token": token}
    if resumption is not None:
        flat: dict[str, JsonLike] = {
            "resume_token": resumption.token,
            "last_event_seq": resumption.after_seq,
        }
        payload |= {"resume": {"session_id": resumption.session_id, **flat}, **flat}
    return envelope.encode("session.hello", dumps(payload))


async def greet(transport: Transport, said: bytes, features: Iterable[str]) -> Greeting:
    """Send the hello `said`, in which `features` are offered, and read the answer.

    Raises:
        ArcpError: the runtime refused the session, with the class of its code.
        ProtocolError: the answer is not one to a hello.
        TransportClosed: there was no answer.
    """
    with suppress(TransportClosed):  # the runtime may have said why before it closed
        await transport.send([said])
    frame = _decode(await transport.receive())
    if frame.type in {"session.error", "job.error"}:
        raise error_from_payload(frame.payload)
    if frame.type != "session.welcome":
        raise ProtocolError(f"the runtime answered hello with {clip(frame.type)}")
    return _greeting(frame, frozenset(features))


def _decode(text: str | bytes) -> Envelope:
    try:
        return envelope.decode(text, max_values=MAX_WELCOME_VALUES)
    except envelope.MalformedFrame as error:
        raise ProtocolError(f"the runtime does not speak ARCP 1.1: {error}") from None


def _greeting(frame: Envelope, offered: frozenset[str]) -> Greeting:
    payload = frame.payload
    session_id = frame.session_id or text_in(payload.get("session_id"))
    if session_id is None:
        raise ProtocolError("the runtime's welcome names no session")
    capabilities = object_in(payload.get("capabilities"))
    features = {name for name in list_in(capabilities.get("features")) if isinstance(name, str)}
    return Greeting(
        session_id=session_id,
        resume_token=text_in(payload.get("resume_token")),
        resume_window=_positive(payload.get("resume_window_sec")),
        heartbeat_interval=_interval(payload.get("heartbeat_interval_sec")),
        features=offered & features,
        agents=tuple(_agents(list_in(capabilities.get("agents")))),
        input_schemas=dict(_input_schemas(object_in(payload.get(VENDOR)))),
        dialect=recognise(frame),
    )


def _agents(inventory: list[JsonValue]) -> Iterable[AgentInfo]:
    """Yield the agents, each a bare name or an object (§6.2)."""
    for entry in inventory:
        if isinstance(entry, str):
            yield AgentInfo(name=entry)
            continue
        fields = object_in(entry)
        name = text_in(fields.get("name"))
        if name is not None:
            yield AgentInfo(
                name=name,
                versions=[v for v in list_in(fields.get("versions")) if isinstance(v, str)],
                default=text_in(fields.get("default")),
                durable=[v for v in list_in(fields.get(DURABLE)) if isinstance(v, str)] or None,
            )


def _input_schemas(extras: JsonObject) -> Iterable[tuple[str, JsonObject]]:
    for ref, schema in object_in(extras.get("input_schemas")).items():
        if is_object(schema):
            yield ref, schema


def _interval(value: JsonValue) -> float | None:
    seconds = _positive(value)
    return None if seconds is None else max(seconds, MIN_HEARTBEAT_SECONDS)


def _positive(value: JsonValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    return float(value)
