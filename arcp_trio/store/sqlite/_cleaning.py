"""Deletion of what can no longer be read, in pieces so short that commits can wait for them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Final

from arcp_trio.store.first_numbers import Run, end_index, extend
from arcp_trio.store.packing import numbered_in, pack_runs, unpack_runs
from arcp_trio.store.snapshot import EVERYTHING
from arcp_trio.store.sqlite import _durable
from arcp_trio.store.sqlite._file import transaction

PIECE_SECONDS: Final = 0.003
"""How long a piece may take, about: a commit that comes meanwhile waits as much longer."""

PIECE_ROWS: Final = 8
"""Rows that one statement deletes."""
LOG_ROWS: Final = 16
"""Rows of a log that one statement deletes: they are small, and moving their numbers costs less the
more of them are moved together."""
PIECE_PAGES: Final = 64
"""Pages that one statement gives back."""

ROW_RUNS: Final = 64
"""Runs in one row of `numbering`, at most: the last row is rewritten until it is full."""

SPARE_PAGES: Final = 1_024
"""Free pages that are kept in the file for the next writes; in a large file it is a quarter."""


def clean_piece(db: sqlite3.Connection) -> bool:
    """Delete a piece of what was given up; return False if nothing is left to delete."""
    with transaction(db, "IMMEDIATE"):
        return any(_for_a_while(step, db) for step in (_forget_jobs, _clear_journals, _clear_logs))


def shrink_piece(db: sqlite3.Connection) -> bool:
    """Give free pages back to the file system; return False if no page can be spared."""
    with transaction(db, "IMMEDIATE"):
        return _for_a_while(_shrink, db)


def _for_a_while(step: Callable[[sqlite3.Connection], bool], db: sqlite3.Connection) -> bool:
    end = perf_counter() + PIECE_SECONDS
    while step(db):
        if perf_counter() > end:
            return True
    return False


def _forget_jobs(db: sqlite3.Connection) -> bool:
    """Delete jobs past their retention that no watch needs, but for journals and numbers."""
    jobs = db.execute(
        "SELECT jid, job_id FROM job WHERE expired = 1"
        " AND NOT EXISTS (SELECT 1 FROM watch WHERE watch.job_id = job.job_id) LIMIT ?",
        (PIECE_ROWS,),
    ).fetchall()
    jids = [(jid,) for jid, _ in jobs]
    db.executemany(
        "INSERT OR REPLACE INTO journal_waste (jid, below) VALUES (?, ?)",
        [(jid, EVERYTHING) for jid, _ in jobs],
    )
    db.executemany(
        "DELETE FROM key WHERE job_id = ? AND due IS NULL", [(job_id,) for _, job_id in jobs]
    )
    db.executemany("DELETE FROM submitter WHERE jid = ?", jids)
    db.executemany("DELETE FROM job WHERE jid = ?", jids)
    return bool(jobs)


def _clear_journals(db: sqlite3.Connection) -> bool:
    waste = db.execute("SELECT jid, below FROM journal_waste LIMIT 1").fetchone()
    if waste is None:
        return False
    piece = (
        "FROM journal WHERE id IN (SELECT id FROM journal"
        " WHERE jid = ? AND last_index < ? ORDER BY last_index LIMIT ?)"
    )
    if _durable.may_run_again(db, waste[0]):
        rows = db.execute(f"SELECT first_index, entries {piece}", (*waste, PIECE_ROWS))
        for first_index, packed in rows.fetchall():
            _durable.keep_digests(db, waste[0], first_index, packed)
    deleted = db.execute(f"DELETE {piece}", (*waste, PIECE_ROWS)).rowcount
    if deleted < PIECE_ROWS and not (_clear_numbering(db, *waste) or _clear_memos(db, *waste)):
        db.execute("DELETE FROM journal_waste WHERE jid = ?", waste[:1])
    return True


def _clear_memos(db: sqlite3.Connection, jid: int, below: int) -> bool:
    """Delete memos of a job that is gone; return whether there may be more."""
    if below < EVERYTHING:
        return False
    deleted = db.execute(
        "DELETE FROM memo WHERE id IN (SELECT id FROM memo WHERE jid = ? LIMIT ?)",
        (jid, PIECE_ROWS),
    )
    return deleted.rowcount == PIECE_ROWS


def _clear_numbering(db: sqlite3.Connection, jid: int, below: int) -> bool:
    """Delete numbers whose entries are all gone; return whether there may be more."""
    rows = db.execute(
        "SELECT first_seq, index_behind FROM numbering WHERE jid = ? ORDER BY first_seq LIMIT ?",
        (jid, PIECE_ROWS),
    ).fetchall()
    gone = [first_seq for first_seq, end in rows if end < below]
    db.executemany(
        "DELETE FROM numbering WHERE jid = ? AND first_seq = ?",
        [(jid, first_seq) for first_seq in gone],
    )
    return len(gone) == PIECE_ROWS


def _clear_logs(db: sqlite3.Connection) -> bool:
    waste = db.execute("SELECT sid, below FROM log_waste LIMIT 1").fetchone()
    if waste is None:
        return False
    rows = db.execute(
        "SELECT id, items FROM log WHERE sid = ? AND last_place < ?"
        " ORDER BY last_place, row LIMIT ?",
        (*waste, LOG_ROWS),
    ).fetchall()
    _keep_numbers(db, waste[0], [items for _, items in rows])
    db.executemany("DELETE FROM log WHERE id = ?", [(number,) for number, _ in rows])
    if len(rows) < LOG_ROWS:
        db.execute("DELETE FROM log_waste WHERE sid = ?", waste[:1])
    return True


def _keep_numbers(db: sqlite3.Connection, sid: int, batches: Iterable[bytes]) -> None:
    """Move the numbers of retained jobs that the session submitted into `numbering`."""
    runs: dict[str, list[Run]] = {}
    for packed in batches:
        for job_id, run in numbered_in(packed):
            extend(runs.setdefault(job_id, []), run)
    for job_id, numbers in runs.items():
        job = db.execute(
            "SELECT jid, base FROM job WHERE job_id = ? AND sid = ? AND expired = 0", (job_id, sid)
        ).fetchone()
        if job is not None:
            jid, base = job
            _extend_numbering(db, jid, [run for run in numbers if end_index(run) >= base])


def _extend_numbering(db: sqlite3.Connection, jid: int, runs: Sequence[Run]) -> None:
    last = db.execute(
        "SELECT runs FROM numbering WHERE jid = ? ORDER BY first_seq DESC LIMIT 1", (jid,)
    ).fetchone()
    joined = [] if last is None else unpack_runs(last[0])
    for run in runs:
        extend(joined, run)
    rows = [joined[at : at + ROW_RUNS] for at in range(0, len(joined), ROW_RUNS)]
    db.executemany(
        "INSERT OR REPLACE INTO numbering (jid, first_seq, index_behind, runs) VALUES (?, ?, ?, ?)",
        [(jid, row[0][0], end_index(row[-1]), pack_runs(row)) for row in rows],
    )


def _shrink(db: sqlite3.Connection) -> bool:
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    if free <= max(SPARE_PAGES, pages // 4):
        return False
    db.execute(f"PRAGMA incremental_vacuum({PIECE_PAGES})").fetchall()  # a page is a row
    return True
