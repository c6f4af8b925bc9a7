"""Other vendors' clients that need something else than the specification's shape.

A client is recognised by its hello. What it cannot read is translated as it is sent; the log
keeps the specification's shape. docs/conformance.md lists the departures.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import attrs

from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.json import Json, dumps, loads


@attrs.frozen(kw_only=True)
class Dialect:
    """How frames must look, and what must be left unsaid, for one family of clients."""

    name: str
    quiet_after_end: bool = False
    """It takes every `session.error` for the end of all its jobs, so that a cancel which came
    too late is better left unanswered."""
    translate: Callable[[bytes], bytes | None] | None = None
    """Rewrites a frame's tail (see `envelope.tail`), or has a frame without a number left out; None
    sends all as it is."""
    busy_behind: bytes | None = None
    """It loses what it reads together with a frame whose tail begins so."""


def recognise(hello: Envelope) -> Dialect:
    """Tell the dialect of a client by its first frame."""
    capabilities = hello.payload.get("capabilities")
    if isinstance(capabilities, dict) and "agents" in capabilities:
        return PYTHON
    if hello.id.startswith("msg_"):
        return TYPESCRIPT
    return STANDARD


# --- the Python SDK --------------------------------------------------------------------------

_ACCEPTED = b',"type":"job.accepted",'
_ERROR = b',"type":"job.error",'
_SUBSCRIBED = b',"type":"job.subscribed",'  # it knows the job a turn of its loop later
_TRANSLATED_STATUS = ("cancelled", "timed_out")


def _to_python(tail: bytes) -> bytes | None:
    # Events are by far the most: they pass after two comparisons.
    if tail.startswith(_ACCEPTED):
        rewrite = _budget_as_strings
    elif tail.startswith(_ERROR):
        rewrite = _ended_as_result
    else:
        return tail
    fields: dict[str, Json] = loads(b"{" + tail[1:])
    if "parent_job_id" in fields["payload"]:
        return None  # it would take a child's acceptance for the answer to its oldest submit
    return b"," + dumps(rewrite(fields))[1:]


def _budget_as_strings(fields: dict[str, Json]) -> dict[str, Json]:
    """Its model of `job.accepted` has amounts as in the lease, `{"USD": "USD:5.00"}`."""
    payload: dict[str, Json] = fields["payload"]
    budget: dict[str, Json] | None = payload.get("budget")
    if budget is None:
        return fields
    amounts = {currency: f"{currency}:{_plain(amount)}" for currency, amount in budget.items()}
    return {**fields, "payload": {**payload, "budget": amounts}}


def _plain(amount: Json) -> str:
    return format(Decimal(str(amount)), "f")


def _ended_as_result(fields: dict[str, Json]) -> dict[str, Json]:
    """Its `job.error` knows no status but "error", its `job.result` knows the others."""
    payload: dict[str, Json] = fields["payload"]
    if payload.get("final_status") not in _TRANSLATED_STATUS:
        return fields
    kept = {name: payload[name] for name in ("final_status", "completed_at") if name in payload}
    return {**fields, "type": "job.result", "payload": kept}


STANDARD = Dialect(name="standard")
PYTHON = Dialect(name="python", quiet_after_end=True, translate=_to_python, busy_behind=_SUBSCRIBED)
TYPESCRIPT = Dialect(name="typescript", quiet_after_end=True)  # and C#, which needs the same

_BY_NAME = {dialect.name: dialect for dialect in (STANDARD, PYTHON, TYPESCRIPT)}


def named(name: str) -> Dialect:
    """The dialect of that name, for a session that goes on without another hello."""
    return _BY_NAME[name]
