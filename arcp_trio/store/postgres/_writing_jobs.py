"""What the writes about jobs and their credentials do to the tables, gathered over a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs
import msgspec

from arcp_trio.store.memos import Durability, Memo
from arcp_trio.store.packing import journal_rows, pack_entries
from arcp_trio.store.postgres._statements import Statement
from arcp_trio.store.records import CredentialRow, Entry, KeyRow
from arcp_trio.store.writes import (
    AcceptJob,
    AppendJournal,
    CancelJob,
    ClaimKey,
    FinishJob,
    KeepCredentials,
    KeepMemo,
    KeepQuestions,
    KeepRun,
    KeepSpent,
    Spend,
    StartJob,
    TrimJournal,
)

# A session that is stolen meanwhile waits for the job, which it has to be told of; one that was
# stolen before leads to no job.
_LOCK_SESSIONS: Final = """
    SELECT FROM session WHERE session_id = ANY(%(0)b::text[]) ORDER BY sid FOR SHARE"""

# A key that another node has taken is left alone, and its job is not inserted; nor is the job of a
# session that another node has. A key that has expired is taken once its job is gone.
_ACCEPT: Final = """
    WITH locked AS MATERIALIZED (
        SELECT sid, session_id, node FROM session WHERE session_id = ANY(%(3)b::text[])
        ORDER BY session_id FOR NO KEY UPDATE
    ), asked AS MATERIALIZED (
        SELECT c.*, s.sid, p.jid AS parent_jid
        FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::text[], %(3)b::text[], %(4)b::text[],
            %(5)b::bytea[], %(6)b::text[], %(7)b::float8[], %(8)b::text[], %(9)b::float8[],
            %(10)b::bigint[], %(11)b::text[], %(12)b::text[], %(13)b::text[], %(14)b::bytea[],
            %(15)b::bytea[], %(16)b::float8[]) WITH ORDINALITY
            AS c (job_id, agent, principal, session_id, trace_id, accepted, request_id, created_at,
                status, finished_at, length, parent, kept_by, key, fingerprint, key_accepted,
                expires_at, place)
        LEFT JOIN locked AS s ON s.session_id = c.session_id
        LEFT JOIN job AS p ON p.job_id = c.parent
        WHERE c.parent IS NOT NULL OR s.sid IS NULL OR s.node = %(me)b
    ), taken AS (
        INSERT INTO key AS k
            (principal, key, fingerprint, job_id, accepted, expires_at, due, node)
        SELECT principal, key, fingerprint, job_id, key_accepted, expires_at, expires_at, %(me)b
        FROM asked WHERE key IS NOT NULL ORDER BY principal, key
        ON CONFLICT (principal, key) DO UPDATE SET fingerprint = excluded.fingerprint,
            job_id = excluded.job_id, accepted = excluded.accepted,
            expires_at = excluded.expires_at, due = excluded.due, node = excluded.node
        WHERE k.job_id = excluded.job_id
            OR k.expires_at <= extract(epoch FROM now())
            AND NOT EXISTS (SELECT FROM retained AS r WHERE r.job_id = k.job_id)
        RETURNING k.job_id
    )
    INSERT INTO job (job_id, agent, principal, session_id, sid, parent_jid, trace_id, accepted,
        request_id, created_at, status, finished_at, length, kept_by, node)
    SELECT job_id, agent, principal, session_id, sid, parent_jid, trace_id, accepted, request_id,
        created_at, status, finished_at, length, kept_by, %(me)b
    FROM asked WHERE key IS NULL OR job_id IN (SELECT job_id FROM taken) ORDER BY place
    RETURNING job_id"""

# The session that has submitted a job is yet to be told that it was accepted.
_SUBMITTERS: Final = """
    INSERT INTO submitter (jid, session_id, told) SELECT j.jid, c.session_id, c.told
    FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::boolean[]) AS c (job_id, session_id, told)
    JOIN job AS j ON j.job_id = c.job_id
    LEFT JOIN session AS s ON s.session_id = c.session_id
    WHERE c.told OR s.sid IS NOT NULL
    ON CONFLICT (jid, session_id) DO NOTHING"""

_DURABLE: Final = """
    INSERT INTO durable (jid, input, max_runtime, sends_chunks, wants_credentials, forget, run,
        fruitless_runs, spent)
    SELECT j.jid, c.input, c.max_runtime, c.sends_chunks, c.wants_credentials, c.forget, c.run,
        c.fruitless_runs, c.spent
    FROM unnest(%(0)b::text[], %(1)b::bytea[], %(2)b::float8[], %(3)b::boolean[], %(4)b::boolean[],
        %(5)b::boolean[], %(6)b::bigint[], %(7)b::bigint[], %(8)b::bytea[])
        AS c (job_id, input, max_runtime, sends_chunks, wants_credentials, forget, run,
            fruitless_runs, spent)
    JOIN job AS j ON j.job_id = c.job_id"""

# Sessions of other nodes are among them. One that is being deleted is left out.
_CHILD_WATCHES: Final = """
    INSERT INTO watch (sid, jid, cursor, last_seq, observed) SELECT s.sid, j.jid, 0, 0, false
    FROM unnest(%(0)b::text[], %(1)b::text[]) AS c (job_id, parent)
    JOIN job AS j ON j.job_id = c.job_id
    JOIN job AS p ON p.job_id = c.parent
    JOIN watch AS w ON w.jid = p.jid AND NOT w.observed
    JOIN session AS s ON s.sid = w.sid
    FOR KEY SHARE OF s
    ON CONFLICT (sid, jid) DO NOTHING"""

_START: Final = """
    UPDATE job AS j SET status = 'running', started_at = c.started_at
    FROM unnest(%(0)b::text[], %(1)b::float8[]) AS c (job_id, started_at)
    WHERE j.job_id = c.job_id AND j.node = %(me)b"""

_CANCEL: Final = """
    UPDATE job AS j SET cancelled = c.reason, stopped_by = c.stopped_by
    FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::text[]) AS c (job_id, reason, stopped_by)
    WHERE j.job_id = c.job_id AND j.node = %(me)b"""

_SPEND: Final = """
    UPDATE job AS j SET budget = c.budget, spent = c.spent
    FROM unnest(%(0)b::text[], %(1)b::bytea[], %(2)b::bytea[]) AS c (job_id, budget, spent)
    WHERE j.job_id = c.job_id AND j.node = %(me)b"""

_QUESTIONS: Final = """
    UPDATE job AS j SET questions = c.questions
    FROM unnest(%(0)b::text[], %(1)b::bytea[]) AS c (job_id, questions)
    WHERE j.job_id = c.job_id AND j.node = %(me)b"""

_FINISH: Final = """
    UPDATE job AS j SET status = c.status, started_at = coalesce(c.started_at, j.started_at),
        finished_at = c.finished_at, terminal_ordinal = c.ordinal, length = c.length,
        budget = c.budget, error = c.error, spent = c.spent, last_event = c.last_event,
        questions = NULL
    FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::float8[], %(3)b::float8[], %(4)b::bigint[],
        %(5)b::bigint[], %(6)b::bytea[], %(7)b::bytea[], %(8)b::bytea[], %(9)b::text[])
        AS c (job_id, status, started_at, finished_at, ordinal, length, budget, error, spent,
            last_event)
    WHERE j.job_id = c.job_id AND j.node = %(me)b"""

_END_DURABLE: Final = """
    WITH ended AS (SELECT jid FROM job WHERE job_id = ANY(%(0)b::text[]) AND node = %(me)b),
    said_no_more AS (DELETE FROM said USING ended WHERE said.jid = ended.jid)
    DELETE FROM durable USING ended WHERE durable.jid = ended.jid"""

_LET_GO: Final = """
    UPDATE job AS child SET kept_by = NULL FROM job AS parent
    WHERE child.kept_by = ANY(%(0)b::text[]) AND parent.job_id = child.kept_by
        AND parent.node = %(me)b"""

# It returns whom to wake: nodes that follow these journals.
_JOURNAL: Final = """
    WITH added AS (
        INSERT INTO journal (jid, first_index, last_index, first_ordinal, entries)
        SELECT j.jid, c.first_index, c.last_index, c.first_ordinal, c.entries
        FROM unnest(%(0)b::text[], %(1)b::bigint[], %(2)b::bigint[], %(3)b::bigint[],
            %(4)b::bytea[]) AS c (job_id, first_index, last_index, first_ordinal, entries)
        JOIN job AS j ON j.job_id = c.job_id AND j.node = %(me)b
        RETURNING jid)
    SELECT DISTINCT node, jid FROM added JOIN follow USING (jid)"""

_MEMO: Final = """
    INSERT INTO memo (jid, key, kind, first_index, value)
    SELECT j.jid, c.key, c.kind, c.first_index, c.value
    FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::text[], %(3)b::bigint[], %(4)b::bytea[])
        WITH ORDINALITY AS c (job_id, key, kind, first_index, value, place)
    JOIN job AS j ON j.job_id = c.job_id AND j.node = %(me)b ORDER BY c.place
    ON CONFLICT (jid, hashtextextended(key, 0), hashtextextended(key, 1))
    DO UPDATE SET kind = excluded.kind, value = excluded.value"""

_RUN: Final = """
    UPDATE durable AS d SET run = c.run, fruitless_runs = c.fruitless_runs
    FROM unnest(%(0)b::text[], %(1)b::bigint[], %(2)b::bigint[]) AS c (job_id, run, fruitless_runs)
    JOIN job AS j ON j.job_id = c.job_id AND j.node = %(me)b WHERE d.jid = j.jid"""

_SPENT: Final = """
    UPDATE durable AS d SET spent = c.spent
    FROM unnest(%(0)b::text[], %(1)b::bytea[]) AS c (job_id, spent)
    JOIN job AS j ON j.job_id = c.job_id AND j.node = %(me)b WHERE d.jid = j.jid"""

_TRIM: Final = """
    WITH trimmed AS (
        UPDATE job AS j SET base = c.base
        FROM unnest(%(0)b::text[], %(1)b::bigint[]) AS c (job_id, base)
        WHERE j.job_id = c.job_id AND j.node = %(me)b RETURNING j.jid, j.base)
    INSERT INTO journal_waste (jid, below) SELECT jid, base FROM trimmed
    ON CONFLICT (jid) DO UPDATE SET below = greatest(journal_waste.below, excluded.below)"""

_REVOKED: Final = "DELETE FROM credential WHERE row_id = ANY(%(0)b::text[]) AND node = %(me)b"

_CREDENTIAL: Final = """
    INSERT INTO credential AS k
        (row_id, order_id, job_id, principal, state, handle, credential_id, node)
    SELECT c.*, %(me)b FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::text[], %(3)b::text[],
        %(4)b::text[], %(5)b::text[], %(6)b::text[]) AS c
    ON CONFLICT (row_id) DO UPDATE SET state = excluded.state WHERE k.node = excluded.node"""


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
        return _LOCK_SESSIONS, [(write.row.session_id,) for write in self._submitted()]

    def _submitted(self) -> list[AcceptJob]:
        return [write for write in self._accepted if write.parent is None]

    def acceptances(self) -> Statement:
        """Return the statement that inserts jobs, and returns the ids of those it has inserted."""
        return _ACCEPT, [_acceptance(write) for write in self._accepted]

    def rest(self) -> Iterator[Statement]:
        """Yield what comes after the acceptances, but for the journals."""
        rows = [write.row for write in self._accepted]
        told = [(row.job_id, name, True) for row in rows for name in row.submitters]
        untold = [(each.row.job_id, each.row.session_id, False) for each in self._submitted()]
        yield _SUBMITTERS, told + untold
        yield (
            _DURABLE,
            [
                _durable(write.row.job_id, write.durability)
                for write in self._accepted
                if write.durability is not None
            ],
        )
        yield (
            _CHILD_WATCHES,
            [
                (write.row.job_id, write.parent)
                for write in self._accepted
                if write.parent is not None
            ],
        )
        yield _START, [each for each in self._starts.items() if each[0] not in self._ends]
        yield (
            _CANCEL,
            [(each.job_id, each.reason, each.stopped_by) for each in self._cancels.values()],
        )
        yield _SPEND, [(each.job_id, each.budget, each.spent) for each in self._spends.values()]
        yield _QUESTIONS, list(self._questions.items())
        yield (
            _MEMO,
            [
                (job_id, key, memo.kind, memo.index, memo.value)
                for (job_id, key), memo in self._memos.items()
            ],
        )
        yield _RUN, [(each.job_id, each.run, each.fruitless_runs) for each in self._runs.values()]
        yield _SPENT, list(self._spent.items())
        yield _TRIM, list(self._bases.items())
        yield _FINISH, [_end(each, self._starts.get(each.job_id)) for each in self._ends.values()]
        durable = [(each.job_id,) for each in self._ends.values() if each.durable]
        yield _END_DURABLE, durable
        yield _LET_GO, durable
        yield _REVOKED, [(name,) for name, row in self._credentials.items() if row is None]
        yield (
            _CREDENTIAL,
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
        return _JOURNAL, [
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
