"""Runtimes of other vendors, where they need other treatment than the specification describes.

A runtime is recognised by its welcome. What other runtimes merely write differently is understood
from every runtime, where frames are read.
"""

from __future__ import annotations

from typing import Final

import attrs

from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.json import text_in


@attrs.frozen(kw_only=True)
class RuntimeDialect:
    """How one family of runtimes behaves."""

    name: str
    errors_in_order: bool = True
    """A `session.error` that names no request refuses the oldest one."""
    subscriptions_count_alone: bool = False
    """Each subscription has an `event_seq` of its own, from 1."""
    forgets_while_away: bool = False
    """Frames of the time without a connection are lost: a resume does not bring them."""
    resumes_from_before: bool = False
    """A client that misses no frame can resume only by asking for its last frame again."""


STANDARD: Final = RuntimeDialect(name="standard", errors_in_order=False)
"""The runtime of this project: every answer names its request."""
PYTHON: Final = RuntimeDialect(
    name="python", subscriptions_count_alone=True, forgets_while_away=True
)
TYPESCRIPT: Final = RuntimeDialect(
    name="typescript", forgets_while_away=True, resumes_from_before=True
)
"""The TypeScript runtimes, and the C# ones, to which neither treatment does any harm."""
OTHER: Final = RuntimeDialect(name="other")


def recognise(welcome: Envelope) -> RuntimeDialect:
    """Return the dialect of the runtime that sent this welcome."""
    payload = welcome.payload
    token = text_in(payload.get("resume_token")) or ""
    if token.startswith("rtk_"):
        return PYTHON
    if welcome.id.startswith("msg_"):
        return TYPESCRIPT
    ours = token.startswith("rt_") and {"session_id", "accepted_at"} <= payload.keys()
    return STANDARD if ours else OTHER
