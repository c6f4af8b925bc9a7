"""What the writes about jobs and their credentials do to the tables, gathered over a group."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import msgspec

from arcp_trio.store.memos import Durability, Memo
from arcp_trio.store.packing import journal_rows, pack_entries
from arcp_trio.store.postgres._job_statements import (
    ACCEPT,
    CANCEL,
    CHILD_WATCHES,
    CREDENTIAL,
    DURABLE,
    END_DURABLE,
    FINISH,
    JOURNAL,
    LET_GO,
    LOCK_SESSIONS,
    MEMO,
    QUESTIONS,
    REVOKED,
    RUN,
    SPEND,
    SPENT,
    START,
    SUBMITTERS,
    TRIM,
)
from arcp_trio.store.postgres._statements import Statement
from arcp_trio.store.records import CredentialRow, Entry, KeyRow
from arcp_trio.store.shared_writes import ClaimKey, KeepQuestions, Spend
from arcp_trio.store.writes import (
    AcceptJob,
    AppendJournal,
    CancelJob,
    FinishJob,
    KeepCredentials,
    KeepMemo,
    KeepRun,
    KeepSpent,
    StartJob,
    TrimJournal,
)


@attrs.define(eq=False)
class JobWrites:
    """Writes about jobs, that can be stored all at once."""

    _accepted: list[AcceptJob] = attrs.field(factory=list[AcceptJob])
    _keys: set[tuple[str, str]] = attrs.field(factory=set[tuple[str, str]])
    _starts: dict[str, float] = attrs.field(factory=dict[str, float])
    _cancels: dict[str, CancelJob] = attrs.field(factory=dict[str, CancelJob])
    _spends: dict[str, Spend] = attrs.field(factory=dict[str, Spend])
    _questions: dict[str, bytes | None] = attrs.field(factory=dict[str, bytes | None])
    _ends: dict[str, FinishJob] = attrs.field(factory=dict[str, FinishJob])
    _entries: dict[str, list[Entry]] = attrs.field(factory=dict[str, list[Entry]])
    """Consecutive entries of a job share a row."""
    _memos: dict[tuple[str, str], Memo] = attrs.field(factory=dict[tuple[str, str], Memo])
    _runs: dict[str, KeepRun] = attrs.field(factory=dict[str, KeepRun])
    _spent: dict[str, bytes] = attrs.field(factory=dict[str, bytes])
    _bases: dict[str, int] = attrs.field(factory=dict[str, int])
    _credentials: dict[str, CredentialRow | None] = attrs.field(
        factory=dict[str, CredentialRow | None]
    )
    """None for those that are gone."""

    # -- gathering

    def has_key(self, wanted: KeyRow | ClaimKey) -> bool:
        """Return whether a job that was gathered has the idempotency key."""
        return (wanted.principal, wanted.key) in self._keys

    def accept(self, write: AcceptJob) -> None:
        """Gather a job that was accepted."""
        self._accepted.append(write)
        if write.key is not None:
            self._keys.add((write.key.principal, write.key.key))

    def start(self, write: StartJob) -> None:
        """Gather a job's start."""
        self._starts[write.job_id] = write.started_at

    def cancel(self, write: CancelJob) -> None:
        """Gather a job's cancel."""
        self._cancels[write.job_id] = write

    def spend(self, write: Spend) -> None:
        """Gather what a job has spent."""
        self._spends[write.job_id] = write

    def ask(self, write: KeepQuestions) -> None:
        """Gather what a job asks people."""
        self._questions[write.job_id] = write.questions

    def append(self, write: AppendJournal | FinishJob) -> None:
        """Gather an entry of a journal."""
        self._entries.setdefault(write.job_id, []).append(write.entry)

    def finish(self, write: FinishJob) -> None:
        """Gather a job's end."""
        self._ends[write.job_id] = write
        self.append(write)

    def keep_memo(self, write: KeepMemo) -> None:
        """Gather a memo; what is remembered again keeps its place."""
        name, memo = (write.job_id, write.memo.key), write.memo
        before = self._memos.get(name)
        if before is not None:
            memo = msgspec.structs.replace(memo, index=before.index)
        self._memos[name] = memo

    def keep_run(self, write: KeepRun) -> None:
        """Gather the number of a durable job's run."""
        self._runs[write.job_id] = write

    def keep_spent(self, write: KeepSpent) -> None:
        """Gather what a durable job has spent."""
        self._spent[write.job_id] = write.spent

    def trim(self, write: TrimJournal) -> None:
        """Gather the base of a journal; housekeeping deletes the entries below it."""
        self._bases[write.job_id] = write.base

    def keep_credentials(self, write: KeepCredentials) -> None:
        """Gather new states of credentials."""
        for row_id in write.gone:
            self._credentials[row_id] = None
        for row in write.rows:
            before = self._credentials.get(row.row_id)
            kept = row if before is None else msgspec.structs.replace(before, state=row.state)
            self._credentials[row.row_id] = kept

    # -- statements

    def ids(self) -> set[str]:
        """Return the jobs that were accepted; the store says which of them it has taken."""
        return {write.row.job_id for write in self._accepted}

    def sessions(self) -> Statement:
        """Return the statement that comes before the acceptances, and locks their sessions."""
        return LOCK_SESSIONS, [(write.row.session_id,) for write in self._submitted()]

    def _submitted(self) -> list[AcceptJob]:
        return [write for write in self._accepted if write.parent is None]

    def acceptances(self) -> Statement:
        """Return the statement that inserts jobs, and returns the ids of those it has inserted."""
        return ACCEPT, [_acceptance(write) for write in self._accepted]

    def rest(self) -> Iterator[Statement]:
        """Yield what comes after the acceptances, but for the journals."""
        rows = [write.row for write in self._accepted]
        told = [(row.job_id, name, True) for row in rows for name in row.submitters]
        untold = [(each.row.job_id, each.row.session_id, False) for each in self._submitted()]
        yield SUBMITTERS, told + untold
        yield (
            DURABLE,
            [
                _durable(write.row.job_id, write.durability)
                for write in self._accepted
                if write.durability is not None
            ],
        )
        yield (
            CHILD_WATCHES,
            [
                (write.row.job_id, write.parent)
                for write in self._accepted
                if write.parent is not None
            ],
        )
        yield START, [each for each in self._starts.items() if each[0] not in self._ends]
        yield (
            CANCEL,
            [(each.job_id, each.reason, each.stopped_by) for each in self._cancels.values()],
        )
        yield SPEND, [(each.job_id, each.budget, each.spent) for each in self._spends.values()]
        yield QUESTIONS, list(self._questions.items())
        yield (
            MEMO,
            [
                (job_id, key, memo.kind, memo.index, memo.value)
                for (job_id, key), memo in self._memos.items()
            ],
        )
        yield RUN, [(each.job_id, each.run, each.fruitless_runs) for each in self._runs.values()]
        yield SPENT, list(self._spent.items())
        yield TRIM, list(self._bases.items())
        yield FINISH, [_end(each, self._starts.get(each.job_id)) for each in self._ends.values()]
        durable = [(each.job_id,) for each in self._ends.values() if each.durable]
        yield END_DURABLE, durable
        yield LET_GO, durable
        yield REVOKED, [(name,) for name, row in self._credentials.items() if row is None]
        yield (
            CREDENTIAL,
            [
                (
                    row.row_id,
                    row.order_id,
                    row.job_id,
                    row.principal,
                    row.state,
                    row.handle,
                    row.credential_id,
                )
                for row in self._credentials.values()
                if row is not None
            ],
        )

    def journals(self) -> Statement:
        """Return the statement that inserts the entries, and returns who follows the journals."""
        return JOURNAL, [
            (job_id, row[0].index, row[-1].index, row[0].ordinal, pack_entries(row))
            for job_id, entries in self._entries.items()
            for row in journal_rows(entries)
        ]


def _acceptance(write: AcceptJob) -> tuple[object, ...]:
    row, key = write.row, write.key
    return (
        row.job_id,
        row.agent,
        row.principal,
        row.session_id,
        row.trace_id,
        row.accepted,
        row.request_id,
        row.created_at,
        row.status,
        row.finished_at,
        row.length,
        write.parent,
        write.parent if write.kept else None,
        None if key is None else key.key,
        None if key is None else key.fingerprint,
        None if key is None else key.accepted,
        None if key is None else key.expires_at,
    )


def _durable(job_id: str, durability: Durability) -> tuple[object, ...]:
    return (
        job_id,
        durability.input,
        durability.max_runtime,
        durability.sends_chunks,
        durability.wants_credentials,
        durability.forget,
        durability.run,
        durability.fruitless_runs,
        durability.spent,
        durability.knows_questions,
    )


def _end(write: FinishJob, started_at: float | None) -> tuple[object, ...]:
    return (
        write.job_id,
        write.status,
        started_at,
        write.finished_at,
        write.entry.ordinal,
        write.entry.index + 1,
        write.budget,
        write.error,
        write.spent,
        write.last_event,
    )
