"""What a store holds, as values.

A job's *journal* is its events, stored once and indexed 0, 1, 2 …. A session's *log* says which of
its numbers went to which journal entries. A *watch* is a session's cursor into one journal: the
next index it is owed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, TypeGuard

import msgspec

from arcp_trio.store.memos import Durability, JournalExtent


class Status(enum.StrEnum):
    """The status of a job; the last four are terminal (§7.3)."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class Entry(msgspec.Struct, eq=False, gc=False):
    """One event, or the terminal, of a job: encoded once, shared by all that are sent it.

    There may be millions of them. None refers to an object that could refer back, so the garbage
    collector need not look at them (`gc=False`).
    """

    index: int
    """Place in the job's journal, counted from 0."""
    ordinal: int
    """Place among all entries of the runtime, in the order in which jobs emitted them."""
    tail: bytes
    """The frame from its type on; a session's head and number go before it."""
    feature: str | None = None
    """The feature that a session must have negotiated to be sent the entry (§6.2)."""
    terminal: bool = False
    child: str | None = None
    """The job that this one delegated to. The entry is its acceptance, which takes no number; the
    sessions that submitted the parent watch the child from this entry on (§10)."""
    once: bool = False
    """A durable job emitted it outside of its steps. A later run that emits the same says it no
    more."""


HOLES: Final = 0
"""The first byte of a tail that has holes where secrets go; no other tail begins with it.

The holes are filled before the frame is sent. A reader that only shows the frame drops the
byte."""

Owed: TypeAlias = tuple[str, Entry]
"""The id of a job, and an entry of its journal that a session is owed."""

NumberedTail: TypeAlias = tuple[int, bytes]
"""A frame as a session sends it: its number, 0 for a frame without one, and its tail."""


class Range(msgspec.Struct, frozen=True, gc=False):
    """`count` numbers of a session, and the entries of one journal that they were given to."""

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
        """The place in the log where it begins."""
        return 2 * self.first_seq

    @property
    def last_place(self) -> int:
        """The place in the log where it ends."""
        return 2 * self.last_seq

    @property
    def size(self) -> int:
        """Bytes that only the log has: its entries are in a journal."""
        return 0

    def goes_on_in(self, item: LogItem) -> TypeGuard[Range]:
        """Return whether `item` is a range that begins where this one ends."""
        return (
            type(item) is Range
            and item.job_id == self.job_id
            and item.first_index == self.first_index + self.count
            and item.first_seq == self.last_seq + 1
        )


class Inline(msgspec.Struct, frozen=True, gc=False):
    """A numbered frame that belongs to one session alone, kept whole."""

    seq: int
    tail: bytes

    @property
    def first_place(self) -> int:
        """The place in the log where it begins."""
        return 2 * self.seq

    @property
    def last_place(self) -> int:
        """The place in the log where it ends."""
        return 2 * self.seq

    @property
    def size(self) -> int:
        """Bytes that only the log has."""
        return len(self.tail)


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A promise: a frame without a number, such as `job.accepted`, that a resume repeats.

    A resume from number `after_seq`, or from an earlier one, repeats it.
    """

    after_seq: int
    row: int
    """Number of the batch that it was stored with."""
    tail: bytes

    @property
    def first_place(self) -> int:
        """The place in the log where it begins."""
        return 2 * self.after_seq + 1

    @property
    def last_place(self) -> int:
        """The place in the log where it ends."""
        return 2 * self.after_seq + 1

    @property
    def size(self) -> int:
        """Bytes that only the log has."""
        return len(self.tail)


LogItem: TypeAlias = Range | Inline | Mark
"""A log is ordered by place: number n stands at place 2n, the marks after it at place 2n + 1."""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is stored; a parked session exists only as this row."""

    session_id: str
    principal: str
    client: str = ""
    """What is known of the token with which the principal was authenticated last."""
    features: frozenset[str]
    dialect: str
    token_digest: bytes
    """Digest of the newest resume token."""
    spare_digests: tuple[bytes, ...] = ()
    """Digests of earlier tokens, oldest first; they are valid until the client sends a frame."""
    top: int = 0
    """The highest number taken."""
    floor: int = 0
    """Numbers up to this one are acknowledged or evicted: no resume replays them.

    A floor of `top + 1` says that promises after the last number were evicted, too: until the next
    number is taken, no resume brings everything.
    """
    log_bytes: int = 0
    """Bytes of the marks and inline frames of the log above the floor, or more."""
    log_rows: int = 0
    """Length of the log in rows; each batch is one row."""
    acked: bool = False
    """Whether the client has ever acknowledged anything."""
    watches: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """Cursor by job id."""
    observed: frozenset[str] = frozenset()
    """The watched jobs that the session subscribed to, and did not submit (§7.6)."""
    moves: int = 0
    """How often a node has taken it, if several runtimes share the store."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
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
    request_id: str | None = None
    """The submit that the acceptance answers; kept only if several runtimes share the store."""
    created_at: float
    status: Status = Status.PENDING
    finished_at: float | None = None
    length: int = 0
    """Number of entries that its journal was given; set for finished jobs, and in `Recovered`."""
    cancelled: str | None = None
    """The reason of the cancel, from the moment the cancel was accepted."""
    stopped_by: str | None = None
    """The principal that has stopped the job, if one has."""
    submitters: frozenset[str] = frozenset()
    """Sessions whose logs have its acceptance; several can submit one job under one key."""
    last_seq: int = 0
    """The highest number that `session_id` gave to its entries; 0 before the first (§6.6)."""
    budget: bytes | None = None
    """What was left of its budget at its end, by currency, as JSON."""
    started_at: float | None = None
    """When its agent was called."""
    error: bytes | None = None
    """Why it did not succeed: code and message in one line, as JSON."""
    spent: bytes | None = None
    """What it had spent at its end, by currency, as JSON."""
    last_event: str | None = None
    """Its last event before its end, in words."""
    questions: bytes | None = None
    """What it asks people now, as a JSON list, if several runtimes share the store."""
    node: int | None = None
    """The node at which it runs, if several runtimes share the store."""
    base: int = 0
    """The index of its journal's oldest entry; told only if several runtimes share the store."""


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """An idempotency key and the acceptance it stands for (§7.2)."""

    principal: str
    key: str
    fingerprint: bytes
    job_id: str
    accepted: bytes
    expires_at: float


class CredentialState(enum.StrEnum):
    """The state of a provisioned credential that is not revoked yet (§9.8.2)."""

    ISSUING = "issuing"
    """The upstream may have been asked for it. Stored before the request is sent."""
    LIVE = "live"
    REVOKING = "revoking"
    UNREVOCABLE = "unrevocable"
    """The upstream refuses to revoke it: an operator has to do so by hand."""


class CredentialRow(msgspec.Struct, frozen=True, kw_only=True):
    """What revoking a credential needs; the value of the credential is never stored."""

    row_id: str
    order_id: str
    """The name that the upstream was told to give to what it mints."""
    job_id: str
    principal: str
    state: CredentialState
    handle: str | None = None
    """The upstream's own id for it; None until the upstream has answered."""
    credential_id: str | None = None
    """The id that clients know."""


CREDENTIAL_COLUMNS: Final = ", ".join(CredentialRow.__struct_fields__)
"""The columns of a table that `credential_of` makes a row of."""


def credential_of(columns: Sequence[object]) -> CredentialRow:
    """Return the row with these values of `CREDENTIAL_COLUMNS`."""
    names = CredentialRow.__struct_fields__
    return msgspec.convert(dict(zip(names, columns, strict=True)), CredentialRow)


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime that starts has to know of what is stored."""

    ordinal: int
    """The highest ordinal of any entry."""
    sessions: Mapping[str, str]
    """Principals by session id, oldest session first."""
    unfinished: Sequence[JobRow]
    """Jobs that were alive when the previous runtime ended."""
    credentials: Sequence[CredentialRow] = ()
    """Credentials that are not revoked yet, oldest first."""
    durable: Mapping[str, tuple[Durability, JournalExtent]] = msgspec.field(
        default_factory=dict[str, tuple[Durability, JournalExtent]]
    )
    """The durable ones among `unfinished`, by job id."""
