"""What a store holds, as values.

A job's *journal* is its events, stored once and indexed 0, 1, 2 …. A session's *log* says which of
its numbers went to which journal entries. A *watch* is a session's cursor into one journal: the
next index it is owed.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

import attrs
import msgspec


class Status(enum.StrEnum):
    """Where a job stands; the last four are terminal (§7.3)."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class Entry(msgspec.Struct, eq=False, gc=False):
    """One event, or the terminal, of a job: encoded once, shared by all that are sent it.

    There may be millions, which refer to nothing that could refer back: the collector is spared.
    """

    index: int
    """Place in the job's journal, from 0."""
    ordinal: int
    """Place among all entries of the runtime: the order in which jobs emitted."""
    tail: bytes
    """The frame from its type on; a session's head and number go before it."""
    feature: str | None = None
    """A session that did not negotiate this feature is not sent the entry (§6.2)."""
    terminal: bool = False
    child: str | None = None
    """A job that this one delegated to: the entry is its acceptance, which takes no number, and
    whoever submitted the parent watches the child from here on (§10)."""


HOLES = 0
"""The first byte of a tail that has holes where secrets go; no other tail begins so. Whoever sends
it fills them; whoever shows it leaves the byte out."""

Frame = tuple[int, bytes]
"""What a session sends: its number (0 for a frame without one) and the frame's tail."""


@attrs.frozen
class Range:
    """Numbers `first_seq …` of a session went to entries `first_index …` of one journal."""

    first_seq: int
    job_id: str
    first_index: int
    count: int

    @property
    def last_seq(self) -> int:
        """The number of its last entry."""
        return self.first_seq + self.count - 1

    @property
    def first_place(self) -> int:
        """Where it begins in the order of a log."""
        return 2 * self.first_seq

    @property
    def last_place(self) -> int:
        """Where it ends in the order of a log."""
        return 2 * self.last_seq

    def goes_on_in(self, item: LogItem) -> TypeGuard[Range]:
        """Whether an item is a range that begins where this one ends."""
        return (
            type(item) is Range
            and item.job_id == self.job_id
            and item.first_index == self.first_index + self.count
            and item.first_seq == self.last_seq + 1
        )


@attrs.frozen
class Inline:
    """A numbered frame that only one session has, kept whole."""

    seq: int
    tail: bytes

    @property
    def first_place(self) -> int:
        """Where it begins in the order of a log."""
        return 2 * self.seq

    @property
    def last_place(self) -> int:
        """Where it ends in the order of a log."""
        return 2 * self.seq


@attrs.frozen
class Mark:
    """A promise without a number, as `job.accepted`: replayed by a resume at or before it."""

    after_seq: int
    row: int
    """The batch of the log that it came with."""
    tail: bytes

    @property
    def first_place(self) -> int:
        """Where it begins in the order of a log."""
        return 2 * self.after_seq + 1

    @property
    def last_place(self) -> int:
        """Where it ends in the order of a log."""
        return 2 * self.after_seq + 1


LogItem = Range | Inline | Mark
"""A log is ordered by place: number n stands at 2n, the marks behind it at 2n + 1."""


@attrs.frozen(kw_only=True)
class SessionRow:
    """A session as it is stored; a parked session is nothing else."""

    session_id: str
    principal: str
    features: frozenset[str]
    dialect: str
    token_digest: bytes
    """Digest of the resume token that was handed out last."""
    spare_digests: tuple[bytes, ...] = ()
    """Digests of the tokens before it, oldest first, that are good until the client is heard."""
    top: int = 0
    """The highest number taken."""
    floor: int = 0
    """Numbers up to this one are acknowledged or evicted: no resume reaches behind it."""
    log_rows: int = 0
    """How many batches its log was given."""
    acked: bool = False
    """Whether the client has ever acknowledged anything."""
    watches: dict[str, int] = attrs.field(factory=dict[str, int])
    """Cursor by job id."""
    observed: frozenset[str] = frozenset()
    """Of these, the jobs that it subscribed to (§7.6)."""


@attrs.frozen(kw_only=True)
class JobRow:
    """A job as it is stored."""

    job_id: str
    agent: str
    """`name@version`, resolved."""
    principal: str
    session_id: str
    """The session that submitted it first."""
    trace_id: str
    accepted: bytes
    """The `job.accepted` payload without its `request_id`, as JSON."""
    created_at: float
    status: Status = Status.PENDING
    finished_at: float | None = None
    length: int = 0
    """How many entries its journal was given; told of finished jobs, and by `Recovered`."""
    cancelled: str | None = None
    """Why it is being cancelled, from the moment a cancel was accepted."""
    submitters: frozenset[str] = frozenset()
    """Sessions whose logs have its acceptance; told of jobs that were submitted under a key."""
    last_seq: int = 0
    """The highest number that the session gave any of its entries; 0 before the first (§6.6)."""
    budget: bytes | None = None
    """What was left of its budget at its end, by currency, as JSON."""


@attrs.frozen(kw_only=True)
class JobQuery:
    """Which retained jobs are wanted, newest first (§6.6)."""

    principal: str | None
    """None asks for those of everybody."""
    statuses: frozenset[Status] = frozenset(Status)
    agent: str | None = None
    """`name` for any version, or `name@version`."""
    created_after: float = -math.inf
    created_before: float = math.inf
    """Jobs that were created at these times themselves are not wanted."""
    behind: tuple[float, str] | None = None
    """`created_at` and id of the last job of the page before."""
    limit: int
    size: float = math.inf
    """Bytes of acceptances: the page ends with the first job that goes beyond."""

    @property
    def bound(self) -> tuple[float, str]:
        """What `created_at` and id of each must be below."""
        before = self.created_before, ""
        return before if self.behind is None else min(before, self.behind)

    def wants(self, row: JobRow) -> bool:
        """Whether status and agent of a job are as wanted."""
        if row.status not in self.statuses:
            return False
        return self.agent is None or self.agent in (row.agent, row.agent.partition("@")[0])


@attrs.frozen(kw_only=True)
class KeyRow:
    """An idempotency key and the acceptance it stands for (§7.2)."""

    principal: str
    key: str
    fingerprint: bytes
    job_id: str
    accepted: bytes
    expires_at: float


class CredentialState(enum.StrEnum):
    """Where a provisioned credential stands that is not revoked yet (§9.8.2)."""

    ISSUING = "issuing"
    """The upstream may have been asked for it; stored before it is."""
    LIVE = "live"
    REVOKING = "revoking"
    UNREVOCABLE = "unrevocable"
    """The upstream will not revoke it: an operator has to see to that."""


@attrs.frozen(kw_only=True)
class CredentialRow:
    """What is needed to revoke a credential; its value is never stored."""

    row_id: str
    order_id: str
    """What the upstream was told to call what it minted."""
    job_id: str
    principal: str
    state: CredentialState
    handle: str | None = None
    """What the upstream calls it; None as long as its answer has not come."""
    credential_id: str | None = None
    """What clients call it."""


@attrs.frozen(kw_only=True)
class Recovered:
    """What a runtime finds in its store when it starts."""

    ordinal: int
    """The highest that any entry has."""
    sessions: Mapping[str, str]
    """Principals by session id, oldest session first."""
    unfinished: Sequence[JobRow]
    """Jobs that were alive when the runtime before this one ended."""
    credentials: Sequence[CredentialRow] = ()
    """Not revoked yet, oldest first."""
