"""Clients of other vendors that need frames in another shape than the specification's.

A client is recognised by its hello. Frames that it cannot read are translated when they are sent;
the log keeps the specification's shape. docs/conformance.md lists the departures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.json import JsonObject, dumps, loads_object, object_in
from arcp_trio.wire.lease_request import decimal_text


@attrs.frozen(kw_only=True)
class Dialect:
    """What one family of clients needs."""

    name: str
    quiet_after_end: bool = False
    """The client takes every `session.error` for the end of all its jobs, so a cancel that came
    too late is not answered."""
    translate: Callable[[bytes], bytes | None] | None = None
    """Rewrites a frame's tail (see `envelope.tail`), or returns None for a frame without a number
    that is not to be sent. Without a translation, frames are sent as they are."""
    busy_after: bytes | None = None
    """The beginning of the tails after which the client is busy: it loses frames that it reads
    together with such a frame."""


def recognise(hello: Envelope) -> Dialect:
    """Recognise the dialect of a client by its first frame."""
    capabilities = hello.payload.get("capabilities")
    if isinstance(capabilities, dict) and "agents" in capabilities:
        return PYTHON
    if hello.id.startswith("msg_"):
        return TYPESCRIPT
    client = hello.payload.get("client")
    if isinstance(client, dict) and client.get("name") == GO_CLIENT:
        return GO
    return STANDARD


# --- the Python SDK --------------------------------------------------------------------------

_ACCEPTED: Final = b',"type":"job.accepted",'
_ERROR: Final = b',"type":"job.error",'
_SUBSCRIBED: Final = b',"type":"job.subscribed",'  # it knows the job one turn of its loop later
_TRANSLATED_STATUS: Final = ("cancelled", "timed_out")


def _to_python(tail: bytes) -> bytes | None:
    # Most frames are events, which pass after two comparisons.
    if tail.startswith(_ACCEPTED):
        rewrite = _budget_as_strings
    elif tail.startswith(_ERROR):
        rewrite = _ended_as_result
    else:
        return tail
    fields = loads_object(b"{" + tail[1:])
    if "parent_job_id" in object_in(fields["payload"]):
        return None  # the client would take it for the answer to its oldest submit
    return b"," + dumps(rewrite(fields))[1:]


def _budget_as_strings(fields: JsonObject) -> JsonObject:
    """Write amounts as in a lease, `{"USD": "USD:5.00"}`: the SDK's `job.accepted` has strings."""
    payload = object_in(fields["payload"])
    if "budget" not in payload:
        return fields
    amounts: JsonObject = {
        currency: f"{currency}:{decimal_text(amount)}"
        for currency, amount in object_in(payload["budget"]).items()
        if isinstance(amount, int | float)
    }
    return {**fields, "payload": {**payload, "budget": amounts}}


def _ended_as_result(fields: JsonObject) -> JsonObject:
    """Write a `job.result`: the SDK's `job.error` has no other status than "error"."""
    payload = object_in(fields["payload"])
    if payload.get("final_status") not in _TRANSLATED_STATUS:
        return fields
    kept: JsonObject = {
        name: payload[name] for name in ("final_status", "completed_at") if name in payload
    }
    return {**fields, "type": "job.result", "payload": kept}


# --- the Go SDK ------------------------------------------------------------------------------

GO_CLIENT: Final = "arcp-go-client"
"""The name with which the Go SDK's client introduces itself."""

_RESULT: Final = b',"type":"job.result",'
_INLINE: Final = b'"payload":{"final_status":"success","result":'
_OUTPUT: Final = b'"payload":{"final_status":"success","output":'


def _to_go(tail: bytes) -> bytes:
    """Name an inline result `output`, which the SDK reads; no field before it has free text."""
    return tail.replace(_INLINE, _OUTPUT, 1) if tail.startswith(_RESULT) else tail


STANDARD: Final = Dialect(name="standard")
PYTHON: Final = Dialect(
    name="python", quiet_after_end=True, translate=_to_python, busy_after=_SUBSCRIBED
)
TYPESCRIPT: Final = Dialect(name="typescript", quiet_after_end=True)  # C# needs the same

GO: Final = Dialect(name="go", translate=_to_go)

_BY_NAME: Final = {dialect.name: dialect for dialect in (STANDARD, PYTHON, TYPESCRIPT, GO)}


def named(name: str) -> Dialect:
    """Return the dialect of this name, for a session that goes on without another hello."""
    return _BY_NAME[name]
