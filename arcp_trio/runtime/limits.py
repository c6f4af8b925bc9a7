"""Every bound of the runtime, under the name that a refusal gives it."""

from __future__ import annotations

from typing import Final

import attrs

from arcp_trio.wire.errors import InternalError

MIB: Final = 1024 * 1024
DAY: Final = 86_400
"""Seconds."""

LEAST_CHUNK_BYTES: Final = 4
"""Room for any UTF-8 character."""


@attrs.frozen(kw_only=True)
class Limits:
    """What one runtime allows: `Limits(jobs=50)` changes one limit and keeps the others.

    A refusal names the limit that was reached in its details. docs/operating.md has a table of all.
    """

    frame_bytes_in: int = 4 * MIB
    """A larger frame from a client ends its socket with 1009."""
    first_frame_bytes: int = 64 * 1024
    """The same for the frame that asks for a session, whose sender is not authenticated yet."""
    frame_bytes_out: int = MIB
    """No frame sent is larger; an event or result that would be is refused to its agent."""
    json_depth: int = 64
    """Levels of nesting in a frame."""
    json_values: int = 50_000
    """Values in a frame, by its commas and opening brackets: how long its decoding may take."""
    handshake_seconds: float = 10
    """From TCP accept to welcome."""
    connections_before_handshake: int = 512
    """Open and not welcomed yet; past it the address that has most of them loses its oldest."""
    close_seconds: float = 2
    """How long a farewell may take before the socket is closed by force."""
    outbox_items: int = 1_024
    """Per session; past it hints are dropped (the journal has the events) and answers wait."""
    outbox_bytes: int = 4 * MIB
    """Bytes of answers that wait to be sent, per session; past it no command is executed."""
    inbox_items: int = 256
    """Commands per session that wait for earlier ones; past it the reader waits."""
    inbox_bytes: int = 8 * MIB
    """The same in bytes, including submits that are still being decided."""
    received_bytes_per_principal: int = 64 * MIB
    received_bytes_total: int = 256 * MIB
    """The same of all sessions of one principal, and of all; past either its readers wait."""
    tail_frames: int = 10_000
    tail_bytes: int = 16 * MIB
    """Numbered and not yet sent, per session; past either nothing more is numbered."""
    tail_bytes_per_principal: int = 64 * MIB
    tail_bytes_total: int = 256 * MIB
    """What waits to be sent, answers included, of all sessions of one principal, and of all; past
    either only sessions that were sent everything get more, batch by batch."""
    unacked_frames: int = 1_000_000
    """Kept for replay, per session; past it the oldest are given up."""
    log_bytes: int = 16 * MIB
    """Promises, and frames for one session alone, kept for replay; past it the oldest are given up.

    Until its next event, a session then cannot be resumed.
    """
    journal_bytes: int = 1024 * MIB
    """Per job; past it the job waits for its attached submitter, or the oldest events go."""
    chunk_bytes: int = 256 * 1024
    """Streamed results are split into chunks of at most this size, decoded."""
    result_bytes: int = 1024 * MIB
    """No streamed result is larger."""
    sessions_per_principal: int = 100
    """Connected."""
    parked_sessions_per_principal: int = 1_000
    """The oldest go first."""
    jobs_per_principal: int = 100
    jobs: int = 1_000
    """Running: at work, and not waiting for people."""
    waiting_jobs_per_principal: int = 1_000
    waiting_jobs: int = 10_000
    """Waiting for people; further ones count as running."""
    input_bytes_per_principal: int = 128 * MIB
    input_bytes_total: int = 512 * MIB
    """Bytes of the inputs of running jobs."""
    waiting_submits_per_principal: int = 1_000
    waiting_submits: int = 10_000
    """Submits that wait for another one with the same key."""
    agent_threads: int = 1_000
    """Threads for agents that are plain functions or under asyncio; past it their jobs fail."""
    agent_threads_per_principal: int = 100
    """The same for each principal; threads that outlast their jobs count."""
    subscriptions_per_session: int = 1_000
    malformed_frames: int = 1_000
    """Per ten seconds and connection; past it the connection is closed with 1008."""
    messages_per_second: int = 4_000
    """Per principal, with a burst of four seconds' worth; past it its readers wait."""
    failed_auth_per_minute: int = 60
    """Wrong bearer tokens per address; past it wrong ones get this limit as their error."""
    idempotency_seconds: float = DAY
    finished_job_seconds: float = 30 * DAY
    finished_jobs: int = 100_000
    stored_bytes_per_principal: int = 4096 * MIB
    stored_bytes_total: int = 16384 * MIB
    """Bytes of jobs, sessions and keys in the store; past either the oldest finished ones go."""
    resume_window_seconds: int = 600
    """How long a session can be resumed after its connection ended."""
    heartbeat_seconds: int = 30
    """A ping every interval; two silent ones are a lost connection."""
    cancel_grace_seconds: float = 30
    """How long an agent may clean up once its job is to end."""
    lease_grace_seconds: float = 0.25
    """How long a lease lasts after its `expires_at`, at most 1: clocks differ a little (§14)."""
    delegation_depth: int = 8
    """How many jobs may stand above a delegated one."""
    children_per_job: int = 64
    """Children of one job that have not ended."""
    memo_bytes: int = MIB
    """The limit for one step's result, and for anything else that is remembered under one key."""
    memos_bytes: int = 64 * MIB
    """The limit for all that one job remembers."""
    jobs_begun_per_second: int = 100
    """Durable jobs that go on after a restart; the others wait for their turn."""
    runs_without_progress: int = 5
    """Runs of a durable job that the end of the process cut off before they made any progress."""

    questions_per_job: int = 16
    """Questions of one job that wait for an answer."""
    question_bytes: int = 256 * 1024
    """Bytes of all questions of one job that wait for an answer: listings repeat them."""
    approval_seconds: float = 7 * DAY
    """How long people have for the decision on an approval."""

    agent_start_seconds: float = 60
    """From the start of an agent's program to its session, for agents that speak ACP."""
    agent_line_bytes: int = 32 * MIB
    """A line that such a program writes; a longer one ends its job."""
    agent_home_seconds: int = 90 * DAY
    """How long the HOME of such a program is kept, for a principal, after its last job."""
    agent_requests: int = 64
    """Requests of such a program that have no answer yet; further ones are refused."""
    agent_file_bytes: int = 16 * MIB
    """Bytes of a file that such a program has read or written for it."""
    terminals_per_job: int = 16
    """Commands of such a program that run; those that have ended make room for new ones."""
    terminal_bytes: int = MIB
    """Bytes of the output of one command: only the newest is kept."""

    release_seconds: float = 1
    """How long another node may take to let go of a session before it is stolen."""
    node_seconds: float = 10
    """A node without a sign of life for so long is taken for dead, and others go on without it."""
    follow_seconds: float = 1
    """How late an event of a job at another node can be, if the wake-up for it gets lost."""
    followed_jobs: int = 10_000
    """Jobs of other nodes that sessions here watch; past it no further one is subscribed to."""
    orphan_seconds: float = 600
    """How long a durable job waits for a node that has its agent."""
    command_seconds: float = 5
    """How long another node may take to do what a client asks of a job that runs there."""

    issue_seconds: float = 10
    """How long an upstream may take to issue a job's credentials before the job is refused."""
    revoke_seconds: float = 5
    """How long a job's end waits for revocation, which is tried further after it."""

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(Limits):
            least = _LEAST.get(field.name, 1)
            if getattr(self, field.name) < least:
                raise ValueError(f"the limit {field.name} must be at least {least}")
        if self.lease_grace_seconds > 1:
            raise ValueError("the limit lease_grace_seconds must be at most 1")
        if self.chunk_bytes < LEAST_CHUNK_BYTES:
            raise ValueError(f"the limit chunk_bytes must be at least {LEAST_CHUNK_BYTES}")

    def within(self, stored_bytes: float) -> Limits:
        """Return these limits for a store that cannot keep more than that."""
        if self.stored_bytes_total <= stored_bytes:
            return self
        most = int(stored_bytes)
        each = min(self.stored_bytes_per_principal, most)
        return attrs.evolve(self, stored_bytes_total=most, stored_bytes_per_principal=each)


_LEAST: Final = {
    "cancel_grace_seconds": 0,
    "finished_job_seconds": 0,
    "finished_jobs": 0,
    "follow_seconds": 0.01,
    "idempotency_seconds": 0,
    "lease_grace_seconds": 0,
}
"""The least value of each limit for which that is not 1."""


def limit_hit(limit: str, most: float, *, what_helps: str | None = None) -> InternalError:
    """Return the error for a limit: the only code of §12 that fits, and retryable.

    The code is retryable whether or not waiting helps; where something helps, the message says so.
    """
    message = f"the limit {limit} is reached"
    if what_helps is not None:
        message = f"{message}: {what_helps}"
    return InternalError(message, details={"limit": limit, "max": most})


STREAM_IT: Final = "write it with job.stream_result()"
"""What helps an agent whose result does not fit into a message."""


def too_large(what: str, size: int, most: int, what_helps: str) -> str:
    """Say how large something is and may be, and what helps."""
    return f"{what} is {size:,} bytes as JSON, of at most {most:,}; {what_helps}"
