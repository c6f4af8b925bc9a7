"""What each write does to the tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import singledispatchmethod

from arcp_trio.store.records import Entry, Range, Status
from arcp_trio.store.sqlite.packing import pack_entries, pack_items
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
    MoveFloor,
    PutSession,
    RotateToken,
    StartJob,
    TrimJournal,
    Write,
)

ROW_ENTRIES, ROW_BYTES = 256, 256 * 1024
"""A row of a journal holds no more than this: a reader unpacks all of it."""

EVERYTHING = 2**62
"""Above every index and place."""


class GroupWriter:
    """Applies one group of writes, within the caller's transaction.

    What is written to a job or session that is gone is dropped: its owner was late, and nobody can
    read it.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._entries: dict[str, list[Entry]] = {}
        """Gathered by job over the group: consecutive entries are one row."""

    def apply(self, writes: Sequence[Write]) -> int:
        """Apply them, in order; the highest ordinal of their entries, 0 without any."""
        for write in writes:
            if type(write) is AppendJournal:
                self._entries.setdefault(write.job_id, []).append(write.entry)
            else:
                self._apply(write)
        if not self._entries:
            return 0
        self._append_journals()
        return max(entries[-1].ordinal for entries in self._entries.values())

    def _append_journals(self) -> None:
        self._db.executemany(
            "INSERT INTO journal (jid, first_index, last_index, first_ordinal, entries)"
            " SELECT jid, ?2, ?3, ?4, ?5 FROM job WHERE job_id = ?1",
            (
                (job_id, row[0].index, row[-1].index, row[0].ordinal, pack_entries(row))
                for job_id, entries in self._entries.items()
                for row in _rows(entries)
            ),
        )

    @singledispatchmethod
    def _apply(self, write: Write) -> None:
        raise AssertionError(write)

    # -- sessions

    @_apply.register
    def _(self, write: PutSession) -> None:
        row = write.row
        self._db.execute(
            "INSERT INTO session (session_id, principal, features, dialect, top, floor, rows,"
            " acked) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.session_id,
                row.principal,
                " ".join(sorted(row.features)),
                row.dialect,
                row.top,
                row.floor,
                row.log_rows,
                row.acked,
            ),
        )
        self._put_tokens(row.session_id, (*row.spare_digests, row.token_digest))

    @_apply.register
    def _(self, write: RotateToken) -> None:
        self._db.execute(
            "UPDATE session SET features = ?, dialect = ? WHERE session_id = ?",
            (" ".join(sorted(write.features)), write.dialect, write.session_id),
        )
        self._drop_tokens(write.session_id)
        self._put_tokens(write.session_id, (*write.spare_digests, write.token_digest))

    def _put_tokens(self, session_id: str, digests: Sequence[bytes]) -> None:
        self._db.executemany(
            "INSERT INTO token (digest, sid, place)"
            " SELECT ?2, sid, ?3 FROM session WHERE session_id = ?1",
            [(session_id, digest, place) for place, digest in enumerate(digests)],
        )

    def _drop_tokens(self, session_id: str) -> None:
        self._db.execute(
            "DELETE FROM token WHERE sid = (SELECT sid FROM session WHERE session_id = ?)",
            (session_id,),
        )

    @_apply.register
    def _(self, write: AppendLog) -> None:
        db, session_id = self._db, write.session_id
        last_seqs = {item.job_id: item.last_seq for item in write.items if type(item) is Range}
        if write.items:
            db.execute(
                "INSERT INTO log (sid, last_place, row, items)"
                " SELECT sid, ?2, ?3, ?4 FROM session WHERE session_id = ?1",
                (session_id, write.items[-1].last_place, write.row, pack_items(write.items)),
            )
        db.execute(
            "UPDATE session SET top = ?, rows = ? WHERE session_id = ?",
            (write.top, write.row + 1, session_id),
        )
        db.executemany(
            "INSERT INTO watch (sid, job_id, cursor, last_seq, observed)"
            " SELECT sid, ?2, ?3, ?4, ?5 FROM session WHERE session_id = ?1"
            " ON CONFLICT DO UPDATE SET cursor = excluded.cursor,"
            " last_seq = max(last_seq, excluded.last_seq),"
            " observed = max(observed, excluded.observed)",
            [
                (session_id, job_id, cursor, last_seqs.get(job_id, 0), job_id in write.observed)
                for job_id, cursor in write.cursors.items()
            ],
        )
        db.executemany(
            "DELETE FROM watch WHERE job_id = ?2"
            " AND sid = (SELECT sid FROM session WHERE session_id = ?1)",
            [(session_id, job_id) for job_id in write.ended],
        )

    @_apply.register
    def _(self, write: MoveFloor) -> None:
        self._db.execute(
            "UPDATE session SET floor = ?2, acked = max(acked, ?3) WHERE session_id = ?1",
            (write.session_id, write.floor, write.acked),
        )
        self._waste_log(write.session_id, 2 * write.floor + 1)

    @_apply.register
    def _(self, write: DropSession) -> None:
        self._waste_log(write.session_id, EVERYTHING)
        self._db.execute(
            "DELETE FROM watch WHERE sid = (SELECT sid FROM session WHERE session_id = ?)",
            (write.session_id,),
        )
        self._drop_tokens(write.session_id)
        self._db.execute("DELETE FROM session WHERE session_id = ?", (write.session_id,))

    def _waste_log(self, session_id: str, below: int) -> None:
        self._db.execute(
            "INSERT INTO log_waste (sid, below)"
            " SELECT sid, ?2 FROM session WHERE session_id = ?1"
            " ON CONFLICT DO UPDATE SET below = excluded.below",
            (session_id, below),
        )

    # -- jobs

    @_apply.register
    def _(self, write: AcceptJob) -> None:
        row, key = write.row, write.key
        added = self._db.execute(
            "INSERT INTO job (job_id, agent, principal, session_id, sid, trace_id, accepted,"
            " created_at, status, finished_at, length) VALUES (?1, ?2, ?3, ?4,"
            " (SELECT sid FROM session WHERE session_id = ?4), ?5, ?6, ?7, ?8, ?9, ?10)",
            (
                row.job_id,
                row.agent,
                row.principal,
                row.session_id,
                row.trace_id,
                row.accepted,
                row.created_at,
                row.status,
                row.finished_at,
                row.length,
            ),
        )
        self._db.executemany(
            "INSERT INTO submitter (jid, session_id) VALUES (?, ?)",
            [(added.lastrowid, session_id) for session_id in row.submitters],
        )
        if write.parent is not None:
            self._db.execute(
                "INSERT INTO watch (sid, job_id, cursor, last_seq, observed)"
                " SELECT sid, ?, 0, 0, 0 FROM watch WHERE job_id = ? AND observed = 0",
                (row.job_id, write.parent),
            )
        if key is not None:
            self._db.execute(
                "INSERT OR REPLACE INTO key"
                " (principal, key, fingerprint, job_id, accepted, expires_at, due)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
                (
                    key.principal,
                    key.key,
                    key.fingerprint,
                    key.job_id,
                    key.accepted,
                    key.expires_at,
                ),
            )

    @_apply.register
    def _(self, write: AddSubmitter) -> None:
        self._db.execute(
            "INSERT OR IGNORE INTO submitter (jid, session_id)"
            " SELECT jid, ?2 FROM job WHERE job_id = ?1",
            (write.job_id, write.session_id),
        )

    @_apply.register
    def _(self, write: StartJob) -> None:
        self._db.execute(
            "UPDATE job SET status = ? WHERE job_id = ?", (Status.RUNNING, write.job_id)
        )

    @_apply.register
    def _(self, write: CancelJob) -> None:
        self._db.execute(
            "UPDATE job SET cancelled = ? WHERE job_id = ?", (write.reason, write.job_id)
        )

    @_apply.register
    def _(self, write: FinishJob) -> None:
        entry = write.entry
        self._entries.setdefault(write.job_id, []).append(entry)
        self._db.execute(
            "UPDATE job SET status = ?, finished_at = ?, terminal_ordinal = ?, length = ?,"
            " budget = ? WHERE job_id = ?",
            (
                write.status,
                write.finished_at,
                entry.ordinal,
                entry.index + 1,
                write.budget,
                write.job_id,
            ),
        )

    @_apply.register
    def _(self, write: TrimJournal) -> None:
        self._db.execute("UPDATE job SET base = ?2 WHERE job_id = ?1", (write.job_id, write.base))
        self._db.execute(
            "INSERT INTO journal_waste (jid, below) SELECT jid, ?2 FROM job WHERE job_id = ?1"
            " ON CONFLICT DO UPDATE SET below = excluded.below",
            (write.job_id, write.base),
        )

    @_apply.register
    def _(self, write: KeepCredentials) -> None:
        self._db.executemany(
            "DELETE FROM credential WHERE row_id = ?", [(row_id,) for row_id in write.gone]
        )
        self._db.executemany(
            "INSERT INTO credential"
            " (row_id, order_id, job_id, principal, state, handle, credential_id)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (row_id) DO UPDATE SET state = excluded.state",
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
                for row in write.rows
            ],
        )

    @_apply.register
    def _(self, write: Expire) -> None:
        """Only mark jobs: what they leave may be much, and is cleared away in the background."""
        db = self._db
        db.execute(
            "UPDATE job SET expired = 1 WHERE finished_at <= ? AND expired = 0",
            (write.finished_before,),
        )
        (kept,) = db.execute(
            "SELECT count(*) FROM job WHERE finished_at IS NOT NULL AND expired = 0"
        ).fetchone()
        if kept > write.finished_jobs:
            db.execute(
                "UPDATE job SET expired = 1 WHERE jid IN (SELECT jid FROM job"
                " WHERE finished_at IS NOT NULL AND expired = 0"
                " ORDER BY finished_at, terminal_ordinal LIMIT ?)",
                (kept - write.finished_jobs,),
            )
        db.execute(
            "DELETE FROM key WHERE due <= ?"
            " AND NOT EXISTS (SELECT 1 FROM retained WHERE retained.job_id = key.job_id)",
            (write.now,),
        )
        db.execute("UPDATE key SET due = NULL WHERE due <= ?", (write.now,))


def _rows(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """The entries, a row's worth at a time."""
    start = size = 0
    for place, entry in enumerate(entries):
        if place - start == ROW_ENTRIES or (size and size + len(entry.tail) > ROW_BYTES):
            yield entries[start:place]
            start, size = place, 0
        size += len(entry.tail)
    yield entries[start:]
