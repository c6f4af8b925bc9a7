"""The writes of a store, as values; they are queued in order and committed in groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from arcp_trio.store.memos import Durability, Memo
from arcp_trio.store.records import (
    CredentialRow,
    Entry,
    JobRow,
    KeyRow,
    LogItem,
    SessionRow,
    Status,
)
from arcp_trio.store.shared_writes import SharedWrite


class AppendJournal(msgspec.Struct, eq=False, gc=False):
    """A job emitted an event."""

    job_id: str
    entry: Entry


class AppendLog(msgspec.Struct, eq=False):
    """A session numbered a batch: ranges, marks, cursors and top number are stored together."""

    session_id: str
    row: int
    """Number of this batch; one more than that of the batch before."""
    items: Sequence[LogItem]
    top: int
    cursors: Mapping[str, int]
    watched: Sequence[str]
    """Jobs whose watch begins with this batch."""
    ended: Sequence[str]
    """Jobs whose watch ends: their terminal is in this batch, or the session unsubscribed."""
    observed: Sequence[str] = ()
    """Jobs among `watched` that the session subscribed to, and did not submit (§7.6)."""
    log_bytes: int = 0
    """See `SessionRow`."""

    @property
    def is_awaited(self) -> bool:
        """Whether a client may wait for it: an acceptance or a terminal is in it."""
        return bool(self.watched or self.ended)


class PutSession(msgspec.Struct, eq=False):
    """A session was opened."""

    row: SessionRow


class RotateToken(msgspec.Struct, eq=False):
    """A session was attached to a connection, and its client got another resume token."""

    session_id: str
    token_digest: bytes
    spare_digests: tuple[bytes, ...]
    features: frozenset[str]
    dialect: str
    client: str = ""
    """See `SessionRow`."""


class MoveFloor(msgspec.Struct, eq=False):
    """Numbers up to `floor` will no longer be replayed (§6.5)."""

    session_id: str
    floor: int
    acked: bool
    log_bytes: int = 0
    """See `SessionRow`."""


class DropSession(msgspec.Struct, eq=False):
    """A session is forgotten, with its log and its watches."""

    session_id: str


class AcceptJob(msgspec.Struct, eq=False):
    """A job was accepted, and its idempotency key is taken.

    A session that watches the job's parent, because it submitted the parent, watches the job from
    its first entry on, even while no connection is attached (§10).
    """

    row: JobRow
    key: KeyRow | None
    parent: str | None = None
    durability: Durability | None = None
    """None for a job that does not survive the runtime."""
    kept: bool = False
    """The job is kept until its parent's end, which may be called again and ask for it."""


class AddSubmitter(msgspec.Struct, eq=False):
    """A session's log has the acceptance of a job that was submitted under a key (§7.2)."""

    job_id: str
    session_id: str


class StartJob(msgspec.Struct, eq=False):
    """The agent of a job was called."""

    job_id: str
    started_at: float


class CancelJob(msgspec.Struct, eq=False):
    """A cancel was accepted: the job will end as cancelled, also after a restart (§7.4)."""

    job_id: str
    reason: str
    stopped_by: str | None = None
    """The principal that has stopped the job; None for a `job.cancel`."""


class FinishJob(msgspec.Struct, eq=False):
    """A job ended: status, time and terminal entry are stored together."""

    job_id: str
    status: Status
    finished_at: float
    entry: Entry
    budget: bytes | None = None
    """What was left of its budget, by currency, as JSON; None for a job without a budget."""
    error: bytes | None = None
    """Why it did not succeed: code and message in one line, as JSON."""
    spent: bytes | None = None
    """What it has spent, by currency, as JSON; None if that is not known."""
    last_event: str | None = None
    """Its last event before this one, in words; None if that is not known, or there was none."""
    durable: bool = False


class KeepMemo(msgspec.Struct, eq=False):
    """A job remembers something, in place of what it remembered under the key before."""

    job_id: str
    memo: Memo


class KeepRun(msgspec.Struct, eq=False):
    """The agent of a durable job is about to be called, or its run has come to something."""

    job_id: str
    run: int
    fruitless_runs: int


class KeepSpent(msgspec.Struct, eq=False):
    """A durable job, or one below it, has spent something."""

    job_id: str
    spent: bytes


class TrimJournal(msgspec.Struct, eq=False):
    """Entries before index `base` are given up: the journal exceeds its bound.

    Memos stay. Of a durable job, the digests of the events stay, too: its next run says none twice.
    """

    job_id: str
    base: int


class KeepCredentials(msgspec.Struct, eq=False):
    """The state of credentials that are to be revoked, and the end of those that were."""

    rows: Sequence[CredentialRow] = ()
    gone: Sequence[str] = ()
    """Ids of the rows of credentials that are revoked, or were never minted."""


class Expire(msgspec.Struct, eq=False):
    """Forget finished jobs past their retention, by age, count and bytes, and expired keys."""

    now: float
    finished_before: float
    finished_jobs: int
    forgotten: Sequence[str] = ()
    """Finished jobs that are to be forgotten now."""
    bytes_each: float = math.inf
    """The most that a principal's jobs, sessions and keys may take."""
    bytes_total: float = math.inf
    """The most that those of all principals may take."""
    parked_sessions: int | None = None
    """The most sessions of a principal that may be parked, if several runtimes share the store."""


Write: TypeAlias = (
    AppendJournal
    | AppendLog
    | PutSession
    | RotateToken
    | MoveFloor
    | DropSession
    | AcceptJob
    | AddSubmitter
    | StartJob
    | CancelJob
    | FinishJob
    | KeepMemo
    | KeepRun
    | KeepSpent
    | TrimJournal
    | KeepCredentials
    | Expire
    | SharedWrite
)
