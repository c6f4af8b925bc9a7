"""What a client says of its trace: a trace id, or a `traceparent` (W3C Trace Context, §11)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from arcp_trio.wire.json import JsonValue

_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


def trace_of(value: JsonValue) -> tuple[str | None, str | None]:
    """Return the 32 hex digits of a trace id, and the `traceparent` around them, if any."""
    if not isinstance(value, str):
        return None, None
    traceparent = _TRACEPARENT.fullmatch(value)
    trace_id = traceparent[1] if traceparent else value
    if _TRACE_ID.fullmatch(trace_id) is None or trace_id == "0" * 32:
        return None, None
    return trace_id, traceparent and value
