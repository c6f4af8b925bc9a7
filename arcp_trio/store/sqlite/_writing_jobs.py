"""What the writes about jobs and their credentials do to the tables, in the caller's transaction.

Entries of journals are not among them: `GroupWriter` packs those of a whole group.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from arcp_trio.store.records import Status
from arcp_trio.store.retention import surplus, surplus_bytes
from arcp_trio.store.sqlite import _durable, _rows
from arcp_trio.store.writes import (
    AcceptJob,
    AddSubmitter,
    CancelJob,
    Expire,
    FinishJob,
    KeepCredentials,
    StartJob,
    TrimJournal,
)


def accept_job(write: AcceptJob, db: sqlite3.Connection) -> None:
    """Insert a job, its submitters, its key, and the watches of its parent's submitters."""
    row, key = write.row, write.key
    added = db.execute(
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
    if write.durability is not None:
        _durable.accept(added.lastrowid, write.durability, db)
    if write.kept:
        _durable.keep_for_parent(added.lastrowid, write.parent, db)
    db.executemany(
        "INSERT INTO submitter (jid, session_id) VALUES (?, ?)",
        [(added.lastrowid, session_id) for session_id in row.submitters],
    )
    if write.parent is not None:
        db.execute(
            "INSERT INTO watch (sid, job_id, cursor, last_seq, observed)"
            " SELECT sid, ?, 0, 0, 0 FROM watch WHERE job_id = ? AND observed = 0",
            (row.job_id, write.parent),
        )
    if key is not None:
        # An expired key may be there still. To replace it would call no trigger for its end.
        db.execute("DELETE FROM key WHERE principal = ? AND key = ?", (key.principal, key.key))
        db.execute(
            "INSERT INTO key"
            " (principal, key, fingerprint, job_id, accepted, expires_at, due)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
            (key.principal, key.key, key.fingerprint, key.job_id, key.accepted, key.expires_at),
        )


def add_submitter(write: AddSubmitter, db: sqlite3.Connection) -> None:
    """Insert another submitter of a job."""
    db.execute(
        "INSERT OR IGNORE INTO submitter (jid, session_id)"
        " SELECT jid, ?2 FROM job WHERE job_id = ?1",
        (write.job_id, write.session_id),
    )


def start_job(write: StartJob, db: sqlite3.Connection) -> None:
    """Update a job with its start."""
    db.execute(
        "UPDATE job SET status = ?, started_at = ? WHERE job_id = ?",
        (Status.RUNNING, write.started_at, write.job_id),
    )


def cancel_job(write: CancelJob, db: sqlite3.Connection) -> None:
    """Update a job with the reason of its cancel, and who has stopped it."""
    db.execute(
        "UPDATE job SET cancelled = ?, stopped_by = ? WHERE job_id = ?",
        (write.reason, write.stopped_by, write.job_id),
    )


def finish_job(write: FinishJob, start: StartJob | None, db: sqlite3.Connection) -> None:
    """Update a job with its end, and with its start if that is not stored yet."""
    entry = write.entry
    db.execute(
        "UPDATE job SET status = ?, started_at = coalesce(?, started_at), finished_at = ?,"
        " terminal_ordinal = ?, length = ?, budget = ?, error = ?, spent = ?, last_event = ?"
        " WHERE job_id = ?",
        (
            write.status,
            None if start is None else start.started_at,
            write.finished_at,
            entry.ordinal,
            entry.index + 1,
            write.budget,
            write.error,
            write.spent,
            write.last_event,
            write.job_id,
        ),
    )
    if write.durable:
        _durable.release(write.job_id, db)


def trim_journal(write: TrimJournal, db: sqlite3.Connection) -> None:
    """Update the base of a journal; housekeeping deletes the entries below it."""
    db.execute("UPDATE job SET base = ?2 WHERE job_id = ?1", (write.job_id, write.base))
    db.execute(
        "INSERT INTO journal_waste (jid, below) SELECT jid, ?2 FROM job WHERE job_id = ?1"
        " ON CONFLICT DO UPDATE SET below = excluded.below",
        (write.job_id, write.base),
    )


def keep_credentials(write: KeepCredentials, db: sqlite3.Connection) -> None:
    """Delete credentials that are gone, and insert or update the others."""
    db.executemany("DELETE FROM credential WHERE row_id = ?", [(row_id,) for row_id in write.gone])
    db.executemany(
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


def expire(write: Expire, db: sqlite3.Connection) -> None:
    """Mark jobs past their retention, and delete expired keys.

    The rows of a marked job may be many, so housekeeping deletes them.
    """
    db.executemany(
        "UPDATE job SET expired = 1 WHERE job_id = ? AND finished_at IS NOT NULL"
        " AND kept_by IS NULL",
        [(job_id,) for job_id in write.forgotten],
    )
    # The index of finished jobs has the principal first.
    db.execute(
        "UPDATE job SET expired = 1 WHERE principal IN (SELECT principal FROM share)"
        " AND finished_at <= ? AND expired = 0 AND kept_by IS NULL",
        (write.finished_before,),
    )
    finished: dict[str, int] = dict(db.execute("SELECT principal, finished_jobs FROM share"))
    db.executemany(
        "UPDATE job SET expired = 1 WHERE jid IN (SELECT jid FROM job"
        " WHERE principal = ? AND finished_at IS NOT NULL AND expired = 0 AND kept_by IS NULL"
        " ORDER BY finished_at, terminal_ordinal LIMIT ?)",
        list(surplus(finished, write.finished_jobs).items()),
    )
    bounds = write.bytes_each, write.bytes_total
    booked: dict[str, int] = dict(db.execute("SELECT principal, stored_bytes FROM share"))
    if surplus_bytes(booked, *bounds):  # else there is no need to look at what is given up
        for principal, size in surplus_bytes(_rows.stored_bytes(db), *bounds).items():
            _expire_bytes(db, principal, size)
    db.execute(
        "DELETE FROM key WHERE due <= ?"
        " AND NOT EXISTS (SELECT 1 FROM retained WHERE retained.job_id = key.job_id)",
        (write.now,),
    )
    db.execute("UPDATE key SET due = NULL WHERE due <= ?", (write.now,))


def _expire_bytes(db: sqlite3.Connection, principal: str, size: int) -> None:
    """Mark a principal's oldest finished jobs, until they have `size` bytes together."""
    jobs = db.execute(
        f"SELECT jid, {_rows.JOB_BYTES} FROM job"  # noqa: S608
        " WHERE principal = ? AND finished_at IS NOT NULL AND expired = 0 AND kept_by IS NULL"
        " ORDER BY finished_at, terminal_ordinal",
        (principal,),
    )
    marked: list[tuple[int]] = []
    with closing(jobs):
        for jid, job_size in jobs:
            if size <= 0:
                break
            marked.append((jid,))
            size -= job_size
    db.executemany("UPDATE job SET expired = 1 WHERE jid = ?", marked)
