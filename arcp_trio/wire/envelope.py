"""The envelope of §5: reading frames, writing frames, and splicing them from finished parts.

An event is encoded once and sent to many sessions. What they share is the *tail*, from `type`
to the end; what differs is the *head* and the sequence number between the two.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Final, Literal, cast

import msgspec
from msgspec import Meta

from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.faults import LARGE, find_fault, has_more_values, is_plain, is_unicode
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import (
    MAX_DEPTH,
    JsonObject,
    JsonText,
    JsonValue,
    loads,
    loads_lax,
)
from arcp_trio.wire.rules import Identifier
from arcp_trio.wire.schema import described, schema_of
from arcp_trio.wire.traces import trace_of

VERSION: Final = "1.1"

_Version = Literal["1.1", "1"]  # peers of ARCP 1.0 say "1"
_OptionalId = Annotated[str, Meta(max_length=256)] | None

_MAX_SEQ: Final = 2**63 - 1
_MAX_ID: Final = 256  # characters of an id that an answer repeats


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One frame, whose payload is not yet checked against the type of its message.

    msgspec makes it of a text and refuses what the annotations do not allow, in a fraction of the
    time that any other way would take for each frame.
    """

    arcp: _Version
    id: Identifier
    type: Identifier
    payload: JsonObject
    session_id: _OptionalId = None
    trace: JsonValue = msgspec.field(default=None, name="trace_id")
    """The `trace_id` as it came."""
    job_id: _OptionalId = None
    event_seq: int | None = None

    @property
    def trace_id(self) -> str | None:
        """The 32 hex digits of the trace id; None if `trace` is not a trace id (§11)."""
        return trace_of(self.trace)[0]

    @property
    def traceparent(self) -> str | None:
        """The whole `traceparent` (W3C Trace Context) in which the trace id came, if it did."""
        return trace_of(self.trace)[1]


class MalformedFrame(InvalidRequest):
    """A frame that is not an envelope; `request_id` is its id, if the id could be read."""

    def __init__(self, message: str, request_id: str | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


class _Unread(msgspec.Struct):
    """An envelope with a payload that is still text."""

    arcp: _Version
    id: Identifier
    type: Identifier
    payload: msgspec.Raw
    session_id: _OptionalId = None
    trace_id: JsonValue = None
    job_id: _OptionalId = None
    event_seq: int | None = None


_decode = msgspec.json.Decoder(Envelope).decode
_decode_unread = msgspec.json.Decoder(_Unread).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


# --- reading ---------------------------------------------------------------------------------


def decode(
    frame: str | bytes,
    *,
    max_depth: int = MAX_DEPTH,
    max_values: float = math.inf,
    large: int = LARGE,
) -> Envelope:
    """Read one frame; `MalformedFrame` names everything that is wrong with its header.

    Unknown fields are ignored (§5), null in an optional field is as good as absent, and a malformed
    trace id is dropped rather than refused. A frame of more than `max_values` is not decoded. In a
    frame of more than `large` characters, what is only handed on is a `JsonText`.
    """
    try:
        text = frame if isinstance(frame, str) else frame.decode()
        if has_more_values(text, max_values):
            raise _too_many_values(text, max_values)
        if len(text) <= large and is_plain(text, max_depth):
            read = _decode(text)
        else:
            read = _decode_carefully(text, max_depth)
    except MalformedFrame:
        raise
    except (UnicodeError, RecursionError, msgspec.DecodeError, InvalidRequest) as error:
        raise _diagnosed(frame, max_depth, error) from None
    if read.event_seq is not None and read.event_seq > _MAX_SEQ:
        raise _diagnosed(text, max_depth)  # msgspec takes integers up to 2**64
    return read


def _decode_carefully(text: str, max_depth: int) -> Envelope:
    """Decode a text that is large, or that may exceed the bounds; they are for its payload only."""
    unread = _decode_unread(text)
    handed_on = _HANDED_ON.get(unread.type)
    if handed_on is None:
        payload = loads(bytes(unread.payload), max_depth=max_depth - 1, root="$.payload")
    else:
        payload = _fields(unread.payload, handed_on, max_depth - 2)
    if not isinstance(payload, dict):
        raise InvalidRequest("expected an object @ $.payload")
    return Envelope(
        arcp=unread.arcp,
        id=unread.id,
        type=unread.type,
        payload=payload,
        session_id=unread.session_id,
        trace=unread.trace_id,
        job_id=unread.job_id,
        event_seq=unread.event_seq,
    )


def _fields(payload: msgspec.Raw, handed_on: str, max_depth: int) -> JsonObject:
    """Decode the fields of a payload but the one that is only handed on."""
    fields: JsonObject = {}
    for name, raw in _decode_fields(payload).items():
        text = bytes(raw)
        read = JsonText.checked if name == handed_on and len(text) > _SMALL else loads
        value = read(text, max_depth=max_depth, root=f"$.payload.{name}")
        fields[name] = cast("JsonValue", value)
    return fields


_HANDED_ON: Final = {"job.submit": "input"}
"""By type: the field that the runtime itself does not look into."""

_SMALL: Final = 4 * 1024
"""Bytes; as objects, a value of this size takes little room and time."""


# --- naming what is wrong --------------------------------------------------------------------


def _diagnosed(
    frame: str | bytes, max_depth: int, failure: Exception | None = None
) -> MalformedFrame:
    """Read a refused frame again, in order to name all of its problems and to find its id."""
    problems: list[str] = []
    text = frame if isinstance(frame, str) else frame.decode(errors="replace")
    if isinstance(frame, bytes) and text.encode() != frame:
        problems.append("not valid UTF-8")
    try:
        fields = loads_lax(text)
    except ValueError as error:
        problems.append(str(error))
        return MalformedFrame("; ".join(problems), _usable_id(_skim_id(text)))
    if not isinstance(fields, dict):
        return MalformedFrame("a frame is one JSON object")
    problems += described(schema_of(Envelope).problems(fields), "$")
    if len(text) <= LARGE:
        fault = find_fault(fields, max_depth)
    else:
        fault = failure.message if isinstance(failure, InvalidRequest) else None
    if fault is not None:
        problems.append(fault)
    return MalformedFrame("; ".join(problems) or "not valid JSON", _usable_id(fields.get("id")))


def _too_many_values(text: str, max_values: float) -> MalformedFrame:
    problem = f"more than {max_values:,} values: the limit json_values is reached"
    return MalformedFrame(problem, _usable_id(_skim_id(text)))


def _usable_id(value: JsonValue) -> str | None:
    """Return an id that an answer can repeat; None for any other value."""
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_ID or not is_unicode(value):
        return None
    return value


_SKIM_LIMIT: Final = 4096  # characters: ids stand early, and megabytes of anything may follow
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]')


def _skim_id(text: str) -> JsonValue:
    """Return the outermost `id` near the beginning of a frame that is not valid JSON."""
    depth = 0
    before = ("", "")  # the two tokens before
    for match in _TOKEN.finditer(text, 0, _SKIM_LIMIT):
        found = match[0]
        if depth == 1 and before == ('"id"', ":"):
            return _unquote(found)
        depth += (found in "{[") - (found in "}]")
        before = (before[1], found)
    return None


def _unquote(text: str) -> JsonValue:
    try:
        return loads_lax(text)
    except ValueError:
        return None


# --- writing ---------------------------------------------------------------------------------

_quote = msgspec.json.Encoder().encode


def encode(
    type: str,  # noqa: A002 - the field's name on the wire
    payload: bytes,
    *,
    session_id: str | None = None,
    arcp: str = VERSION,
    id: str | None = None,  # noqa: A002
    trace_id: str | None = None,
    job_id: str | None = None,
    event_seq: int | None = None,
) -> bytes:
    """Write a whole frame around an encoded payload, with a fresh id unless `id` is given."""
    end = tail(type, payload, id=id or new_id(), trace_id=trace_id, job_id=job_id)
    head = b'{"arcp":%b' % _quote(arcp) if session_id is None else plain_head(session_id, arcp)
    return head + end if event_seq is None else b'%b,"event_seq":%d%b' % (head, event_seq, end)


def plain_head(session_id: str, arcp: str = VERSION) -> bytes:
    """Return the head of a session's frames without a number: `plain_head + tail` is a frame."""
    return b'{"arcp":%b,"session_id":%b' % (_quote(arcp), _quote(session_id))


def numbered_head(session_id: str, arcp: str = VERSION) -> bytes:
    """Return the head of a session's numbered frames: `b"%b%d%b" % (head, seq, tail)` is one."""
    return plain_head(session_id, arcp) + b',"event_seq":'


_PAYLOAD: Final = b',"payload":'


class JobTails:
    """Writes the tails of one job's frames. What they share is encoded once."""

    def __init__(self, job_id: str, trace_id: str) -> None:
        self._shared = b',"trace_id":%b,"job_id":%b,"payload":' % (_quote(trace_id), _quote(job_id))

    def tail(self, type: str, payload: bytes, *, id: str) -> bytes:  # noqa: A002
        """Return a tail, as the function `tail` does."""
        return b',"type":"%b","id":"%b"%b%b}' % (type.encode(), id.encode(), self._shared, payload)


def payload_of(tail: bytes) -> bytes:
    """Return the payload in a tail that `JobTails` wrote."""
    return tail[tail.index(_PAYLOAD) + len(_PAYLOAD) : -1]


def tail(
    type: str,  # noqa: A002
    payload: bytes,
    *,
    id: str,  # noqa: A002
    job_id: str | None = None,
    trace_id: str | None = None,
) -> bytes:
    """Return the part of a frame that does not depend on the session to which it is sent."""
    trace = b"" if trace_id is None else b',"trace_id":' + _quote(trace_id)
    job = b"" if job_id is None else b',"job_id":' + _quote(job_id)
    return b',"type":%b,"id":%b%b%b,"payload":%b}' % (_quote(type), _quote(id), trace, job, payload)
