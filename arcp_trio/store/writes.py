"""Everything a store can be told, as values; they are queued in order and committed in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from arcp_trio.store.records import (
    CredentialRow,
    Entry,
    JobRow,
    KeyRow,
    LogItem,
    SessionRow,
    Status,
)


@attrs.define(eq=False)
class AppendJournal:
    """A job emitted."""

    job_id: str
    entry: Entry


@attrs.define(eq=False)
class AppendLog:
    """A session numbered a batch: its ranges, marks, cursors and top number, together."""

    session_id: str
    row: int
    """Which batch this is; one more than the batch before."""
    items: Sequence[LogItem]
    top: int
    cursors: Mapping[str, int]
    watched: Sequence[str]
    """Jobs whose watch begins with this batch."""
    ended: Sequence[str]
    """Jobs whose watch is over: their terminal is in this batch, or nobody observes them here."""
    observed: Sequence[str] = ()
    """Those of `watched` that the session did not submit, but subscribed to (§7.6)."""


@attrs.define(eq=False)
class PutSession:
    """A new session."""

    row: SessionRow


@attrs.define(eq=False)
class RotateToken:
    """A session was attached: another resume token is out."""

    session_id: str
    token_digest: bytes
    spare_digests: tuple[bytes, ...]
    features: frozenset[str]
    dialect: str


@attrs.define(eq=False)
class MoveFloor:
    """Numbers up to `floor` will not be replayed any more (§6.5)."""

    session_id: str
    floor: int
    acked: bool


@attrs.define(eq=False)
class DropSession:
    """A session is gone, with its log and its watches."""

    session_id: str


@attrs.define(eq=False)
class AcceptJob:
    """A job exists, and its key is taken.

    Who watches its parent as a submitter is owed all of this one, too, also while it is away.
    """

    row: JobRow
    key: KeyRow | None
    parent: str | None = None


@attrs.define(eq=False)
class AddSubmitter:
    """A session's log has the acceptance of a job that was submitted under a key (§7.2)."""

    job_id: str
    session_id: str


@attrs.define(eq=False)
class StartJob:
    """A job's agent runs."""

    job_id: str


@attrs.define(eq=False)
class CancelJob:
    """A cancel was accepted: whatever happens before its end, the job is cancelled (§7.4)."""

    job_id: str
    reason: str


@attrs.define(eq=False)
class FinishJob:
    """A job ended: status, time and terminal entry, together."""

    job_id: str
    status: Status
    finished_at: float
    entry: Entry
    budget: bytes | None = None
    """What was left of its budget by currency, as JSON, if it had one."""


@attrs.define(eq=False)
class TrimJournal:
    """Entries before `base` are given up, the journal being over its bound."""

    job_id: str
    base: int


@attrs.define(eq=False)
class KeepCredentials:
    """These credentials are to be revoked one day, as they stand now; those are no longer."""

    rows: Sequence[CredentialRow] = ()
    gone: Sequence[str] = ()
    """By the ids of their rows."""


@attrs.define(eq=False)
class Expire:
    """Finished jobs past their retention go, by age and by number, and keys past theirs."""

    now: float
    finished_before: float
    finished_jobs: int


Write = (
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
    | TrimJournal
    | KeepCredentials
    | Expire
)
