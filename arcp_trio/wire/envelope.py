"""The envelope of §5: reading frames, writing frames, and splicing them from finished parts.

An event is encoded once and sent to many sessions. What they share is the *tail*, from `type`
to the end; what differs is the *head* and the sequence number between the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from arcp_trio.wire.errors import InvalidRequest, clip
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import (
    LARGE,
    MAX_DEPTH,
    Json,
    JsonObject,
    find_fault,
    is_plain,
    is_unicode,
    loads,
    loads_lax,
)

VERSION = "1.1"
ACCEPTED_VERSIONS = frozenset({VERSION, "1"})  # 1.0 peers say "1"

_MAX_SEQ = 2**63 - 1
_MAX_ID = 256  # characters: ids are stored, and repeated in answers


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One frame, its payload read but not yet checked against the message's type."""

    # There is one for each frame: nothing else reads and makes them at a fraction of the cost.

    arcp: str
    id: str
    type: str
    payload: JsonObject
    session_id: str | None = None
    trace: Json = msgspec.field(default=None, name="trace_id")
    """The `trace_id` as it came."""
    job_id: str | None = None
    event_seq: int | None = None

    @property
    def trace_id(self) -> str | None:
        """The 32 hex digits; None for what is no trace id (§11)."""
        return _trace(self.trace)[0]

    @property
    def traceparent(self) -> str | None:
        """Whole, where the trace id came in one."""
        return _trace(self.trace)[1]


class MalformedFrame(InvalidRequest):
    """A frame that is not an envelope; `request_id` is its id, if that could be read."""

    def __init__(self, message: str, request_id: str | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


class _Unread(msgspec.Struct):
    """The same, with its payload still to be read."""

    arcp: str
    id: str
    type: str
    payload: msgspec.Raw
    session_id: str | None = None
    trace_id: Json = None
    job_id: str | None = None
    event_seq: int | None = None


_decode = msgspec.json.Decoder(Envelope).decode
_decode_unread = msgspec.json.Decoder(_Unread).decode


# --- reading ---------------------------------------------------------------------------------


def decode(frame: str | bytes, *, max_depth: int = MAX_DEPTH) -> Envelope:
    """Read one frame; `MalformedFrame` names everything that is wrong with its header.

    Unknown fields are ignored (§5), a null optional field is an absent one, and a trace id that
    is none is dropped rather than held against the frame.
    """
    try:
        text = frame if isinstance(frame, str) else frame.decode()
        read = _decode(text) if is_plain(text, max_depth) else _decode_carefully(text, max_depth)
    except (UnicodeError, RecursionError, msgspec.DecodeError, InvalidRequest) as failed:
        raise _diagnose(frame, max_depth, failed) from None
    if (
        read.arcp not in ACCEPTED_VERSIONS
        or not 0 < len(read.id) <= _MAX_ID
        or not 0 < len(read.type) <= _MAX_ID
        or (read.session_id and len(read.session_id) > _MAX_ID)
        or (read.job_id and len(read.job_id) > _MAX_ID)
        or (read.event_seq and not -_MAX_SEQ <= read.event_seq <= _MAX_SEQ)
    ):
        raise _diagnose(text, max_depth)
    return read


def _decode_carefully(text: str, max_depth: int) -> Envelope:
    """Decode what is large, or may be beyond the bounds: only its payload has to be within."""
    unread = _decode_unread(text)
    payload = loads(bytes(unread.payload), max_depth=max_depth - 1, root="$.payload")
    if payload.__class__ is not dict:
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


_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


def _trace(value: Json) -> tuple[str | None, str | None]:
    """Take the 32 hex digits of a trace id, or of a whole `traceparent` and that, too (§11)."""
    if not isinstance(value, str):
        return None, None
    traceparent = _TRACEPARENT.fullmatch(value)
    trace_id = traceparent[1] if traceparent else value
    if _TRACE_ID.fullmatch(trace_id) is None or trace_id == "0" * 32:
        return None, None
    return trace_id, traceparent and value


# --- telling what is wrong -------------------------------------------------------------------


def _diagnose(
    frame: str | bytes, max_depth: int, failed: Exception | None = None
) -> MalformedFrame:
    """Look a second time at a frame that failed: name all its problems and find its id."""
    problems: list[str] = []
    text = frame if isinstance(frame, str) else frame.decode(errors="replace")
    if isinstance(frame, bytes) and text.encode() != frame:
        problems.append("not valid UTF-8")
    try:
        fields = loads_lax(text)
    except ValueError as error:
        problems.append(str(error))
        return MalformedFrame("; ".join(problems), _usable_id(_skim_id(text)))
    if fields.__class__ is not dict:
        return MalformedFrame("a frame is one JSON object")
    for name, expected in _EXPECTED.items():
        problems += _field_problems(name, fields, expected)
    if len(text) <= LARGE:
        fault = find_fault(fields, max_depth)
    else:
        fault = failed.message if isinstance(failed, InvalidRequest) else None
    if fault is not None:
        problems.append(fault)
    return MalformedFrame("; ".join(problems) or "not valid JSON", _usable_id(fields.get("id")))


_EXPECTED: dict[str, type] = {
    "arcp": str,
    "id": str,
    "type": str,
    "payload": dict,
    "session_id": str,
    "job_id": str,
    "event_seq": int,
}
_REQUIRED = frozenset({"arcp", "id", "type", "payload"})
_NAMES = {str: "a string", dict: "an object", int: "an integer"}


def _field_problems(name: str, fields: JsonObject, expected: type) -> Iterator[str]:
    value = fields.get(name)
    if value is None:
        if name in _REQUIRED:
            yield f"{'null' if name in fields else 'missing'} @ $.{name}"
    elif value.__class__ is not expected:
        yield f"expected {_NAMES[expected]} @ $.{name}"
    elif isinstance(value, str) and len(value) > _MAX_ID:
        yield f"longer than {_MAX_ID} characters @ $.{name}"
    elif name in _REQUIRED and value == "":
        yield f"empty @ $.{name}"
    elif name == "arcp" and value not in ACCEPTED_VERSIONS:
        yield f"unknown version {clip(repr(value))} @ $.arcp"


def _usable_id(value: Json) -> str | None:
    """Take an id that an answer can repeat."""
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_ID or not is_unicode(value):
        return None
    return value


_SKIM_LIMIT = 4096  # ids stand early; what follows may be megabytes of anything
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]')


def _skim_id(text: str) -> Json:
    """Find the outermost `id` in the beginning of a frame that is not JSON as a whole."""
    depth = 0
    before = ("", "")  # the two tokens before
    for match in _TOKEN.finditer(text, 0, _SKIM_LIMIT):
        found = match[0]
        if depth == 1 and before == ('"id"', ":"):
            return _unquote(found)
        depth += (found in "{[") - (found in "}]")
        before = (before[1], found)
    return None


def _unquote(text: str) -> Json:
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
    """Write a whole frame around an encoded payload; a fresh id unless one is given."""
    end = tail(type, payload, id=id or new_id(), trace_id=trace_id, job_id=job_id)
    head = b'{"arcp":%b' % _quote(arcp) if session_id is None else plain_head(session_id, arcp)
    return head + end if event_seq is None else b'%b,"event_seq":%d%b' % (head, event_seq, end)


def plain_head(session_id: str, arcp: str = VERSION) -> bytes:
    """Begin a session's frames without a number: `plain_head + tail` is a frame."""
    return b'{"arcp":%b,"session_id":%b' % (_quote(arcp), _quote(session_id))


def numbered_head(session_id: str, arcp: str = VERSION) -> bytes:
    """Begin a session's numbered frames: `b"%b%d%b" % (head, seq, tail)` is one."""
    return plain_head(session_id, arcp) + b',"event_seq":'


class JobTails:
    """Writes the tails of one job's frames; what they share is encoded once."""

    def __init__(self, job_id: str, trace_id: str) -> None:
        self._shared = b',"trace_id":%b,"job_id":%b,"payload":' % (_quote(trace_id), _quote(job_id))

    def tail(self, type: str, payload: bytes, *, id: str) -> bytes:  # noqa: A002
        """Like the function `tail`."""
        return b',"type":"%b","id":"%b"%b%b}' % (type.encode(), id.encode(), self._shared, payload)


def tail(
    type: str,  # noqa: A002
    payload: bytes,
    *,
    id: str,  # noqa: A002
    job_id: str | None = None,
    trace_id: str | None = None,
) -> bytes:
    """Everything of a frame that does not depend on the session it goes to."""
    trace = b"" if trace_id is None else b',"trace_id":' + _quote(trace_id)
    job = b"" if job_id is None else b',"job_id":' + _quote(job_id)
    return b',"type":%b,"id":%b%b%b,"payload":%b}' % (_quote(type), _quote(id), trace, job, payload)
