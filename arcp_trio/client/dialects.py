"""Other vendors' runtimes, where they need something else than the specification's way.

A runtime is recognised by its welcome. What they merely write differently is understood from
anybody, where messages are read.
"""

from __future__ import annotations

from typing import Final

import attrs

from arcp_trio.client.lenient import text_in
from arcp_trio.wire.envelope import Envelope


@attrs.frozen(kw_only=True)
class Dialect:
    """How one family of runtimes behaves."""

    name: str
    errors_in_order: bool = True
    """A `session.error` that names no request answers the oldest one."""
    subscriptions_count_alone: bool = False
    """Each subscription has an `event_seq` of its own, from 1."""
    forgets_while_away: bool = False
    """What happens while the connection is down is lost, and a resume does not bring it."""
    resumes_from_before: bool = False
    """A client that is up to date has to ask for one frame that it has."""


STANDARD: Final = Dialect(name="standard", errors_in_order=False)
"""This project's own: every answer names its request."""
PYTHON: Final = Dialect(name="python", subscriptions_count_alone=True, forgets_while_away=True)
TYPESCRIPT: Final = Dialect(
    name="typescript", forgets_while_away=True, resumes_from_before=True
)  # and C#, which minds neither
OTHER: Final = Dialect(name="other")


def recognise(welcome: Envelope) -> Dialect:
    """Tell the dialect of a runtime by its first frame."""
    payload = welcome.payload
    token = text_in(payload.get("resume_token")) or ""
    if token.startswith("rtk_"):
        return PYTHON
    if welcome.id.startswith("msg_"):
        return TYPESCRIPT
    ours = token.startswith("rt_") and {"session_id", "accepted_at"} <= payload.keys()
    return STANDARD if ours else OTHER


#: A `job.error` with one of these, for a job whose cancel is not answered, is that answer.
CANCEL_REFUSALS: Final = frozenset({"PERMISSION_DENIED", "JOB_NOT_FOUND"})


def refuses_submit(code: str, *, known_job: bool) -> bool:
    """Whether a `job.error` is the answer to a submit, rather than the end of a job."""
    return not known_job or code == "DUPLICATE_KEY"
