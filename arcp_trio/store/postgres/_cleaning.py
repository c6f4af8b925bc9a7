"""Deletion of what can no longer be read, in short pieces, by one node at a time.

No piece takes a row from a node: what it deletes is past its end, and a session that is claimed
meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Final

from arcp_trio.store.first_numbers import Run, end_index, extend
from arcp_trio.store.memos import digests
from arcp_trio.store.packing import (
    numbered_in,
    pack_digests,
    pack_runs,
    unpack_entries,
    unpack_runs,
)
from arcp_trio.store.postgres._connections import member_transaction
from arcp_trio.store.postgres._retention import alone
from arcp_trio.store.postgres._rows import UNWATCHED
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.snapshot import EVERYTHING

CLEANING: Final = 2
"""The advisory lock of the one node that cleans up."""

PIECE_SECONDS: Final = 0.003
"""How long a piece may take, about: a read that comes meanwhile may wait as much longer."""

PIECE_ROWS: Final = 32
"""Rows that one statement deletes."""
LOG_ROWS: Final = 64
"""Rows of a log that one statement deletes: they are small, and moving their numbers costs less the
more of them are moved together."""

ROW_RUNS: Final = 64
"""Runs in one row of `numbering`, at most: the last row is rewritten until it is full."""


def clean_piece(db: Database, me: int, *, thorough: bool) -> bool:
    """Delete a piece of what was given up.

    Return False if nothing is left to delete, or if another node is at it.

    Args:
        thorough: whether to look for all, also for what is seldom there and takes long to find.
    """
    steps = (*_STEPS, *_SELDOM) if thorough else _STEPS
    with member_transaction(db, me):
        # What is deleted is booked on node 0. Nobody is told of it, so nothing has to be synced.
        db.execute(
            "SELECT set_config('arcp.node', '0', true),"
            " set_config('synchronous_commit', 'off', true)"
        )
        return alone(db, CLEANING) and any(_for_a_while(step, db) for step in steps)


def _for_a_while(step: Callable[[Database], bool], db: Database) -> bool:
    end = perf_counter() + PIECE_SECONDS
    while step(db):
        if perf_counter() > end:
            return True
    return False


# -- sessions and their logs


def _end_windows(db: Database) -> bool:
    """Delete parked sessions past their windows; one that is being claimed is left alone."""
    rows = db.execute(
        """SELECT sid FROM session WHERE node IS NULL AND parked_until <= now()
        ORDER BY parked_until LIMIT %s FOR UPDATE SKIP LOCKED""",
        (PIECE_ROWS,),
    ).fetchall()
    sids = [sid for (sid,) in rows]
    if sids:
        db.execute(
            """INSERT INTO last_number (jid, seq)
            SELECT jid, watch.last_seq FROM watch JOIN job USING (jid)
            WHERE watch.sid = ANY(%s) AND job.sid = watch.sid AND watch.last_seq > 0
            ON CONFLICT (jid) DO UPDATE SET seq = greatest(last_number.seq, excluded.seq)""",
            (sids,),
        )
        db.execute(
            """INSERT INTO log_waste (sid, below) SELECT unnest(%s::bigint[]), %s
            ON CONFLICT (sid) DO UPDATE SET below = excluded.below""",
            (sids, EVERYTHING),
        )
        db.execute("DELETE FROM session WHERE sid = ANY(%s)", (sids,))
    return len(sids) == PIECE_ROWS


def _clear_logs(db: Database) -> bool:
    waste = db.execute("SELECT sid, below FROM log_waste LIMIT 1").fetchone()
    if waste is None:
        return False
    rows = db.execute(
        """SELECT last_place, row, items FROM log WHERE sid = %s AND last_place < %s
        ORDER BY last_place, row LIMIT %s""",
        (*waste, LOG_ROWS),
        binary=True,
    ).fetchall()
    if rows:
        _keep_numbers(db, waste[0], [items for _, _, items in rows])
        db.execute(
            "DELETE FROM log WHERE sid = %s AND (last_place, row) <= (%s, %s)",
            (waste[0], *rows[-1][:2]),
        )
    if len(rows) < LOG_ROWS:
        # The session may have moved its floor again in the meantime.
        db.execute("DELETE FROM log_waste WHERE sid = %s AND below = %s", waste)
    return True


def _keep_numbers(db: Database, sid: int, batches: Iterable[bytes]) -> None:
    """Move the numbers of retained jobs that the session submitted into `numbering`."""
    runs: dict[str, list[Run]] = {}
    for packed in batches:
        for job_id, run in numbered_in(packed):
            extend(runs.setdefault(job_id, []), run)
    jobs = db.execute(
        "SELECT job_id, jid, base FROM job WHERE job_id = ANY(%s) AND sid = %s AND NOT expired",
        ([*runs], sid),
    ).fetchall()
    for job_id, jid, base in jobs:
        _extend_numbering(db, jid, [run for run in runs[job_id] if end_index(run) >= base])


def _extend_numbering(db: Database, jid: int, runs: Sequence[Run]) -> None:
    last = db.execute(
        "SELECT runs FROM numbering WHERE jid = %s ORDER BY first_seq DESC LIMIT 1",
        (jid,),
        binary=True,
    ).fetchone()
    joined = [] if last is None else unpack_runs(last[0])
    for run in runs:
        extend(joined, run)
    for at in range(0, len(joined), ROW_RUNS):
        row = joined[at : at + ROW_RUNS]
        db.execute(
            """INSERT INTO numbering (jid, first_seq, index_behind, runs) VALUES (%s, %s, %s, %s)
            ON CONFLICT (jid, first_seq) DO UPDATE
            SET index_behind = excluded.index_behind, runs = excluded.runs""",
            (jid, row[0][0], end_index(row[-1]), pack_runs(row)),
        )


# -- jobs and their journals


def _forget_jobs(db: Database) -> bool:
    """Delete jobs past their retention that no watch needs, but for journals and numbers."""
    rows = db.execute(
        f"SELECT jid, job_id FROM job WHERE {UNWATCHED} LIMIT %s",  # noqa: S608
        (PIECE_ROWS,),
    ).fetchall()
    if rows:
        jids, job_ids = [jid for jid, _ in rows], [job_id for _, job_id in rows]
        db.execute(
            """INSERT INTO journal_waste (jid, below) SELECT unnest(%s::bigint[]), %s
            ON CONFLICT (jid) DO UPDATE SET below = excluded.below""",
            (jids, EVERYTHING),
        )
        db.execute("DELETE FROM key WHERE job_id = ANY(%s) AND due IS NULL", (job_ids,))
        for statement in (
            "DELETE FROM submitter WHERE jid = ANY(%s)",
            "DELETE FROM last_number WHERE jid = ANY(%s)",
            "DELETE FROM follow WHERE jid = ANY(%s)",
            "DELETE FROM job WHERE jid = ANY(%s)",
        ):
            db.execute(statement, (jids,))
    return len(rows) == PIECE_ROWS


def _clear_journals(db: Database) -> bool:
    waste = db.execute("SELECT jid, below FROM journal_waste LIMIT 1").fetchone()
    if waste is None:
        return False
    rows = db.execute(
        """SELECT last_index, EXISTS (SELECT 1 FROM durable WHERE jid = %s) FROM journal
        WHERE jid = %s AND last_index < %s ORDER BY last_index LIMIT %s""",
        (waste[0], *waste, PIECE_ROWS),
    ).fetchall()
    if rows:
        if rows[0][1]:
            _keep_digests(db, waste[0], rows[-1][0])
        db.execute(
            "DELETE FROM journal WHERE jid = %s AND last_index <= %s", (waste[0], rows[-1][0])
        )
    if len(rows) < PIECE_ROWS and not (_clear_numbering(db, *waste) or _clear_memos(db, *waste)):
        db.execute("DELETE FROM journal_waste WHERE jid = %s AND below = %s", waste)
    return True


def _keep_digests(db: Database, jid: int, last_index: int) -> None:
    """Insert the digests of rows of a journal that are about to be deleted.

    The job is durable and has not ended: a later run is not to say these events again.
    """
    rows = db.execute(
        """SELECT first_index, entries FROM journal WHERE jid = %s AND last_index <= %s
        ORDER BY last_index""",
        (jid, last_index),
        binary=True,
    ).fetchall()
    for first_index, packed in rows:
        found = digests(unpack_entries(first_index, packed))
        if found:
            db.execute(
                """INSERT INTO said (jid, last_index, digests) VALUES (%s, %s, %s)
                ON CONFLICT (jid, last_index) DO UPDATE SET digests = excluded.digests""",
                (jid, found[-1][0], pack_digests(found)),
            )


def _clear_numbering(db: Database, jid: int, below: int) -> bool:
    """Delete numbers whose entries are all gone; return whether there may be more."""
    deleted = db.execute(
        """DELETE FROM numbering WHERE jid = %s AND first_seq IN (
            SELECT first_seq FROM (
                SELECT first_seq, index_behind FROM numbering WHERE jid = %s
                ORDER BY first_seq LIMIT %s
            ) AS oldest WHERE index_behind < %s
        ) RETURNING 1""",
        (jid, jid, PIECE_ROWS, below),
    )
    return len(deleted.fetchall()) == PIECE_ROWS


def _clear_memos(db: Database, jid: int, below: int) -> bool:
    """Delete memos of a job that is gone; return whether there may be more."""
    if below < EVERYTHING:
        return False
    deleted = db.execute(
        "DELETE FROM memo WHERE id IN (SELECT id FROM memo WHERE jid = %s LIMIT %s) RETURNING 1",
        (jid, PIECE_ROWS),
    )
    return len(deleted.fetchall()) == PIECE_ROWS


# -- nodes


def _forget_nodes(db: Database) -> bool:
    """Delete nodes that were gone for a day, and what is left of what they asked."""
    db.execute("DELETE FROM command WHERE answer IS NOT NULL AND at < now() - interval '1 minute'")
    rows = db.execute(
        """DELETE FROM node WHERE state = 'gone' AND at < now() - interval '1 day'
        AND NOT EXISTS (SELECT 1 FROM job WHERE job.node = node.node AND finished_at IS NULL)
        AND NOT EXISTS (SELECT 1 FROM session WHERE session.node = node.node)
        RETURNING node"""
    ).fetchall()
    gone = [node for (node,) in rows]
    if gone:
        db.execute("DELETE FROM beat WHERE node = ANY(%s)", (gone,))
        db.execute("DELETE FROM command WHERE asker = ANY(%s)", (gone,))
        db.execute(
            """WITH gone AS (DELETE FROM share WHERE node = ANY(%s) RETURNING *)
            INSERT INTO share (principal, node, finished_jobs, stored_bytes)
            SELECT principal, 0, sum(finished_jobs), sum(stored_bytes) FROM gone GROUP BY principal
            ON CONFLICT (principal, node) DO UPDATE
            SET finished_jobs = share.finished_jobs + excluded.finished_jobs,
                stored_bytes = share.stored_bytes + excluded.stored_bytes""",
            (gone,),
        )
    return False


def _forget_shares(db: Database) -> bool:
    """Delete the rows of a principal that has nothing; what is booked meanwhile stays."""
    row = db.execute(
        """SELECT principal FROM share GROUP BY principal
        HAVING sum(finished_jobs) = 0 AND sum(stored_bytes) = 0 LIMIT 1"""
    ).fetchone()
    if row is None:
        return False
    nodes = db.execute(
        """SELECT node, finished_jobs, stored_bytes FROM share WHERE principal = %s
        ORDER BY node FOR UPDATE SKIP LOCKED""",
        row,
    ).fetchall()
    if sum(each[1] for each in nodes) or sum(each[2] for each in nodes):
        return False  # a node books something right now
    db.execute(
        "DELETE FROM share WHERE principal = %s AND node = ANY(%s)",
        (*row, [each[0] for each in nodes]),
    )
    return True


_STEPS: Final = (_end_windows, _forget_jobs, _clear_journals, _clear_logs)
_SELDOM: Final = (_forget_nodes, _forget_shares)
