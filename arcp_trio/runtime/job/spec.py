"""What a job is to be: the value from which new, delegated and revived jobs are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import msgspec

if TYPE_CHECKING:
    from arcp_trio.authority.lease import Lease
    from arcp_trio.runtime.job.agent import Agent
    from arcp_trio.runtime.job.job import Job


@attrs.frozen
class IdempotencyKey:
    """The key that a submit came with, and what was submitted under it (§7.2)."""

    key: str
    fingerprint: bytes


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is to be, by a submit or a delegation: checked, and found valid."""

    agent: Agent
    input: bytes
    """As JSON: decoded, it may take ten times the room."""
    lease: Lease
    """As it was granted."""
    max_runtime: float | None
    principal: str
    session_id: str
    """The session that submitted the job first, or the job at the top of its tree."""
    trace: str | None
    """A trace id, or a whole `traceparent` (§11)."""
    sends_chunks: bool
    """Whether chunks of its result go on the wire; if not, they are kept for an inline result."""
    knows_questions: bool
    """Whether the client that submitted it can be asked for approvals."""
    wants_credentials: bool
    """The job is to have credentials, if its lease needs any (§9.8)."""
    request_id: str | None = None
    """The submit that the job's acceptance answers."""
    key: IdempotencyKey | None = None
    parent: Job | None = None
    """The job that delegates to it (§10)."""
    delegate_id: str | None = None
    forget: bool = False
    """The job leaves listings soon after its end, if it has spent nothing."""
