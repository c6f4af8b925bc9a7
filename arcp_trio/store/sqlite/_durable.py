"""Durable jobs in the tables: writes and reads, within the caller's transaction."""

from __future__ import annotations

import sqlite3
from typing import Final

from arcp_trio.store.interface import Said
from arcp_trio.store.memos import Durability, JournalExtent, Memo, digests
from arcp_trio.store.packing import pack_digests, unpack_digests, unpack_entries
from arcp_trio.store.writes import KeepMemo, KeepRun, KeepSpent

_PIECE_ROWS: Final = 64
"""Rows of a journal that one piece looks at."""

_JID: Final = "(SELECT jid FROM job WHERE job_id = ?1)"


# -- writing


def accept(jid: int | None, durability: Durability, db: sqlite3.Connection) -> None:
    """Insert what it takes to call the agent of an accepted job."""
    db.execute(
        "INSERT INTO durable (jid, input, max_runtime, sends_chunks, wants_credentials, forget,"
        " run, fruitless_runs, spent, knows_questions) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            jid,
            durability.input,
            durability.max_runtime,
            durability.sends_chunks,
            durability.wants_credentials,
            durability.forget,
            durability.run,
            durability.fruitless_runs,
            durability.spent,
            durability.knows_questions,
        ),
    )


def keep_for_parent(jid: int | None, parent: str | None, db: sqlite3.Connection) -> None:
    """Have a job's retention begin at its parent's end."""
    db.execute("UPDATE job SET kept_by = ? WHERE jid = ?", (parent, jid))


def release(job_id: str, db: sqlite3.Connection) -> None:
    """Delete what it would have taken to call the agent again, and let go of the children."""
    db.execute(f"DELETE FROM durable WHERE jid = {_JID}", (job_id,))  # noqa: S608
    db.execute(f"DELETE FROM said WHERE jid = {_JID}", (job_id,))  # noqa: S608
    db.execute("UPDATE job SET kept_by = NULL WHERE kept_by = ?", (job_id,))


def keep_memo(write: KeepMemo, db: sqlite3.Connection) -> None:
    """Insert a memo, or update the value of the one with its key."""
    memo = write.memo
    db.execute(
        "INSERT INTO memo (jid, key, kind, first_index, value)"
        " SELECT jid, ?2, ?3, ?4, ?5 FROM job WHERE job_id = ?1"
        " ON CONFLICT DO UPDATE SET kind = excluded.kind, value = excluded.value",
        (write.job_id, memo.key, memo.kind, memo.index, memo.value),
    )


def keep_run(write: KeepRun, db: sqlite3.Connection) -> None:
    """Update the number of a job's run."""
    db.execute(
        f"UPDATE durable SET run = ?2, fruitless_runs = ?3 WHERE jid = {_JID}",  # noqa: S608
        (write.job_id, write.run, write.fruitless_runs),
    )


def keep_spent(write: KeepSpent, db: sqlite3.Connection) -> None:
    """Update what a job has spent."""
    db.execute(
        f"UPDATE durable SET spent = ?2 WHERE jid = {_JID}",  # noqa: S608
        (write.job_id, write.spent),
    )


def may_run_again(db: sqlite3.Connection, jid: int) -> bool:
    """Return whether this is a durable job that has not ended."""
    return db.execute("SELECT 1 FROM durable WHERE jid = ?", (jid,)).fetchone() is not None


def keep_digests(db: sqlite3.Connection, jid: int, first_index: int, packed: bytes) -> None:
    """Insert the digests of a row of the journal that is about to be deleted."""
    found = digests(unpack_entries(first_index, packed))
    if found:
        db.execute(
            "INSERT OR REPLACE INTO said (jid, last_index, digests) VALUES (?, ?, ?)",
            (jid, found[-1][0], pack_digests(found)),
        )


# -- reading


def unfinished(db: sqlite3.Connection) -> dict[str, tuple[Durability, JournalExtent]]:
    """Read the durable jobs that have not ended."""
    rows = db.execute(
        "SELECT job_id, base, (SELECT coalesce(sum(length(entries)), 0) FROM journal"
        " WHERE journal.jid = job.jid AND last_index >= base), input, max_runtime, sends_chunks,"
        " wants_credentials, forget, run, fruitless_runs, durable.spent,"
        " knows_questions"
        " FROM durable JOIN job USING (jid)"
    ).fetchall()
    return {
        row[0]: (
            Durability(
                input=row[3],
                max_runtime=row[4],
                sends_chunks=bool(row[5]),
                wants_credentials=bool(row[6]),
                forget=bool(row[7]),
                run=row[8],
                fruitless_runs=row[9],
                spent=row[10],
                knows_questions=bool(row[11]),
            ),
            JournalExtent(row[1], row[2]),
        )
        for row in rows
    }


def memos(db: sqlite3.Connection, job_id: str) -> list[Memo]:
    """Read what a job remembers."""
    rows = db.execute(
        "SELECT key, kind, first_index, value FROM memo"  # noqa: S608
        f" WHERE jid = {_JID} ORDER BY id",
        (job_id,),
    ).fetchall()
    return [Memo(*row) for row in rows]


def memo(db: sqlite3.Connection, job_id: str, key: str) -> Memo | None:
    """Read what a job remembers under one key."""
    row = db.execute(
        f"SELECT key, kind, first_index, value FROM memo WHERE jid = {_JID} AND key = ?2",  # noqa: S608
        (job_id, key),
    ).fetchone()
    return None if row is None else Memo(*row)


def said(db: sqlite3.Connection, job_id: str, index: int) -> Said:
    """Read a piece of the events that are not to be said again."""
    job = db.execute("SELECT jid FROM job WHERE job_id = ?", (job_id,)).fetchone()
    if job is None:
        return [], None
    deleted = db.execute(
        "SELECT last_index, digests FROM said WHERE jid = ? AND last_index >= ?"
        " ORDER BY last_index LIMIT ?",
        (*job, index, _PIECE_ROWS),
    ).fetchall()
    if deleted:
        found = [each for _, packed in deleted for each in unpack_digests(packed)]
        return [each for each in found if each[0] >= index], deleted[-1][0] + 1
    rows = db.execute(
        "SELECT first_index, last_index, entries FROM journal WHERE jid = ? AND last_index >= ?"
        " ORDER BY last_index LIMIT ?",
        (*job, index, _PIECE_ROWS),
    ).fetchall()
    if not rows:
        return [], None
    found = [each for first, _, packed in rows for each in digests(unpack_entries(first, packed))]
    return [each for each in found if each[0] >= index], rows[-1][1] + 1
