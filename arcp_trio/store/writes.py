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

    Memos stay, and so does what it takes to know again the events that a durable job has said.
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


class Spend(msgspec.Struct, eq=False):
    """A running job has spent something: other nodes list what it has left."""

    job_id: str
    budget: bytes | None
    """What is left of its budget, by currency, as JSON; None for a job without a budget."""
    spent: bytes
    """What it has spent, by currency, as JSON."""


class KeepQuestions(msgspec.Struct, eq=False):
    """A job has asked people something, or asks it no longer: other nodes list its questions."""

    job_id: str
    questions: bytes | None
    """What it asks, as a JSON list; None if it asks nothing."""


class ClaimKey(msgspec.Struct, eq=False):
    """A node is about to mint credentials for a job with an idempotency key.

    It is refused if the key is taken, or claimed by another node. `AcceptJob` takes the key.
    """

    principal: str
    key: str
    fingerprint: bytes
    job_id: str
    expires_at: float


class DropClaim(msgspec.Struct, eq=False):
    """The job that a key was claimed for is not accepted."""

    principal: str
    key: str
    job_id: str


class AskNode(msgspec.Struct, eq=False):
    """A node asks the one that has a job or a session; nothing happens if no node has it."""

    number: int
    """The number of the command among those of this node."""
    kind: str
    about: str
    """The id of the job or the session."""
    body: bytes


class AskAgain(msgspec.Struct, eq=False):
    """A node asks the same as before of another one, which has the job or the session by now."""

    number: int
    """See `AskNode`."""


class AnswerNode(msgspec.Struct, eq=False):
    """A node has obeyed the command of another one, or refuses to."""

    command: int
    """See `OpenCommand.id`."""
    answer: bytes


class DropAnswers(msgspec.Struct, eq=False):
    """A node has read the answers to these of its commands, by number, or takes them back."""

    numbers: Sequence[int]


class ShowKey(msgspec.Struct, eq=False):
    """A node shows the others the public key to which they can seal what is for it alone."""

    public_key: bytes


class TakeSession(msgspec.Struct, eq=False):
    """A session is to be this node's; refused if it has moved on since it was found, or is gone.

    So it is while another node is about to change it.
    """

    session_id: str
    node: int | None
    """The node that had it; None if it was parked."""
    moves: int
    """How often it had moved."""


class ReleaseSession(msgspec.Struct, eq=False):
    """A session of this node is parked: from then on any node can take it."""

    session_id: str
    seconds: float
    """How long it can be resumed, by the clock of the store."""


class CloseSession(msgspec.Struct, eq=False):
    """A client has closed its session: any session of its principal may cancel its jobs (§6.7).

    Jobs that it submits after it was resumed are its own again.
    """

    session_id: str


class SubmitAgain(msgspec.Struct, eq=False):
    """A session comes again with the key of a job that it has submitted: the job is its own again.

    Only a session that was closed in between has lost the job.
    """

    job_id: str
    session_id: str


class Follow(msgspec.Struct, eq=False):
    """A node is to be woken when entries are added to the journal of a job."""

    job_id: str


class Unfollow(msgspec.Struct, eq=False):
    """A node need not be woken for a job any longer."""

    job_id: str


SharedWrite: TypeAlias = (
    TakeSession
    | ReleaseSession
    | CloseSession
    | SubmitAgain
    | Follow
    | Unfollow
    | Spend
    | KeepQuestions
    | ClaimKey
    | DropClaim
    | AskNode
    | AskAgain
    | AnswerNode
    | DropAnswers
    | ShowKey
)
"""A write that only engines know which several runtimes can share."""

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
