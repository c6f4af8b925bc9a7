"""A write of every kind, about the session S and the job J."""

from __future__ import annotations

from typing import Final, get_args

from msgspec.structs import replace

from arcp_trio.store.memos import Memo
from arcp_trio.store.records import (
    CredentialRow,
    CredentialState,
    Entry,
    Mark,
    Range,
    Status,
)
from arcp_trio.store.shared_writes import (
    AnswerNode,
    AskAgain,
    AskNode,
    ClaimKey,
    CloseSession,
    DropAnswers,
    DropClaim,
    Follow,
    KeepQuestions,
    ReleaseSession,
    ShowKey,
    Spend,
    SubmitAgain,
    TakeSession,
    Unfollow,
)
from arcp_trio.store.writes import (
    AcceptJob,
    AddSubmitter,
    AppendJournal,
    AppendLog,
    CancelJob,
    DropSession,
    Expire,
    FinishJob,
    KeepCredentials,
    KeepMemo,
    KeepRun,
    KeepSpent,
    MoveFloor,
    PutSession,
    RotateToken,
    StartJob,
    TrimJournal,
    Write,
)
from tests.store.engines import job_row, key_row, session_row

CREDENTIAL: Final = CredentialRow(
    row_id="row", order_id="order", job_id="J", principal="alice", state=CredentialState.ISSUING
)

BASE: Final[list[Write]] = [
    PutSession(session_row()),
    AcceptJob(job_row(), key_row()),
    AppendLog("S", 0, [Mark(0, 0, b"accepted")], 0, {"J": 0}, ["J"], []),
    AppendJournal("J", Entry(0, 1, b"first")),
    KeepCredentials([CREDENTIAL]),
    KeepMemo("J", Memo("step", "step", 1, b"1")),
]
"""What is stored before: a session that watches a job."""

WRITES: Final[list[Write]] = [
    AppendJournal("J", Entry(1, 2, b"second")),
    AppendLog("S", 1, [Range(1, "J", 0, 1)], 1, {"J": 1}, [], []),
    PutSession(session_row("S2", token=b"other")),
    RotateToken("S", b"fresh", (b"token",), frozenset(), "standard"),
    MoveFloor("S", 1, acked=True),
    DropSession("S"),
    AcceptJob(job_row("J2"), key_row("J2", key="k2")),
    AddSubmitter("J", "S2"),
    StartJob("J", 1.0),
    CancelJob("J", "enough"),
    FinishJob("J", Status.SUCCESS, 2.0, Entry(2, 3, b"end", terminal=True)),
    KeepMemo("J", Memo("step", "step", 1, b"2")),
    KeepRun("J", 2, 1),
    KeepSpent("J", b"{}"),
    TrimJournal("J", 1),
    KeepCredentials([replace(CREDENTIAL, state=CredentialState.LIVE)]),
    Expire(now=1.0, finished_before=1.0, finished_jobs=0, forgotten=["J"]),
    TakeSession("S", None, 0),
    ReleaseSession("S", 60.0),
    CloseSession("S"),
    SubmitAgain("J", "S"),
    Follow("J"),
    Unfollow("J"),
    Spend("J", b"{}", b"{}"),
    KeepQuestions("J", b"[]"),
    ClaimKey("alice", "k3", b"fingerprint", "J3", 100.0),
    DropClaim("alice", "k", "J"),
    AskNode(1, "cancel", "J", b"{}"),
    AskAgain(1),
    AnswerNode(1, b"{}"),
    DropAnswers([1]),
    ShowKey(b"public"),
]
"""One of each kind, each of which changes what there is, or would if it were this node's."""


def _kinds(union: object) -> set[object]:
    return {kind for part in get_args(union) for kind in (_kinds(part) or {part})}


assert {type(write) for write in WRITES} == _kinds(Write), "a kind of write is missing"
