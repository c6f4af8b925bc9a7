"""Hello and welcome (§6.2), and asking to go on with a session (§6.3)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import attrs

from arcp_trio.client.dialects import Dialect, recognise
from arcp_trio.client.errors import ProtocolError
from arcp_trio.client.lenient import list_in, object_in, text_in
from arcp_trio.transport.base import Transport, TransportClosed
from arcp_trio.version import __version__
from arcp_trio.wire import envelope
from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import clip, error_from_payload
from arcp_trio.wire.json import Json, JsonLike, dumps
from arcp_trio.wire.messages import AgentInfo

CLIENT_NAME: Final = "arcp_trio"
SHORTEST_INTERVAL: Final = 1.0
"""Seconds of a heartbeat."""


@attrs.frozen(kw_only=True)
class Greeting:
    """What a welcome says, as far as it says it."""

    session_id: str
    resume_token: str | None = attrs.field(repr=False)
    resume_window: float | None
    heartbeat_interval: float | None
    features: frozenset[str]
    """In effect: what both sides have."""
    agents: tuple[AgentInfo, ...]
    dialect: Dialect


@attrs.frozen(kw_only=True)
class Resumption:
    """Where to go on."""

    session_id: str
    token: str = attrs.field(repr=False)
    after_seq: int


def hello(
    token: str | None, features: Iterable[str], resumption: Resumption | None = None
) -> bytes:
    """Make a `session.hello`; a resume is in it in both forms that runtimes understand."""
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
    """Say hello and read what comes back.

    Raises:
        ArcpError: the runtime refused, with the class of its code.
        ProtocolError: that was no answer to a hello.
        TransportClosed: nor was that.
    """
    with suppress(TransportClosed):  # what it said before it closed is worth more
        await transport.send([said])
    frame = _read(await transport.receive())
    if frame.type in {"session.error", "job.error"}:
        raise error_from_payload(frame.payload)
    if frame.type != "session.welcome":
        raise ProtocolError(f"the runtime answered hello with {clip(frame.type)}")
    return _greeting(frame, frozenset(features))


def _read(text: str | bytes) -> Envelope:
    try:
        return envelope.decode(text)
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
        dialect=recognise(frame),
    )


def _agents(inventory: list[Json]) -> Iterable[AgentInfo]:
    """The agents, each a bare name or an object (§6.2)."""
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
            )


def _interval(value: Json) -> float | None:
    """Whatever a runtime wants, it is not pinged without a pause."""
    seconds = _positive(value)
    return None if seconds is None else max(seconds, SHORTEST_INTERVAL)


def _positive(value: Json) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if good else None
