"""The writes that only engines know which several runtimes can share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec


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
    """A node is about to mint credentials for a job with an idempotency key, or a job holds a name.

    It is refused if the key is taken, or claimed. `AcceptJob` takes the key. A node's claims go
    with the node.
    """

    principal: str
    key: str
    fingerprint: bytes
    job_id: str
    expires_at: float


class DropClaim(msgspec.Struct, eq=False):
    """The job that a key was claimed for is not accepted, or holds the name no longer."""

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
