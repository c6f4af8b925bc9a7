"""What the writes about sessions do to the tables, within the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from arcp_trio.store.packing import pack_items
from arcp_trio.store.records import Range
from arcp_trio.store.snapshot import EVERYTHING
from arcp_trio.store.writes import AppendLog, DropSession, MoveFloor, PutSession, RotateToken


def put_session(write: PutSession, db: sqlite3.Connection) -> None:
    """Insert a session and its tokens."""
    row = write.row
    db.execute(
        "INSERT INTO session (session_id, principal, features, dialect, top, floor, rows,"
        " acked, log_bytes, client) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row.session_id,
            row.principal,
            " ".join(sorted(row.features)),
            row.dialect,
            row.top,
            row.floor,
            row.log_rows,
            row.acked,
            row.log_bytes,
            row.client,
        ),
    )
    _put_tokens(db, row.session_id, (*row.spare_digests, row.token_digest))


def rotate_token(write: RotateToken, db: sqlite3.Connection) -> None:
    """Update a session to what its newest connection has negotiated, and replace its tokens."""
    db.execute(
        "UPDATE session SET features = ?, dialect = ?, client = ? WHERE session_id = ?",
        (" ".join(sorted(write.features)), write.dialect, write.client, write.session_id),
    )
    _drop_tokens(db, write.session_id)
    _put_tokens(db, write.session_id, (*write.spare_digests, write.token_digest))


def _put_tokens(db: sqlite3.Connection, session_id: str, digests: Sequence[bytes]) -> None:
    db.executemany(
        "INSERT INTO token (digest, sid, place)"
        " SELECT ?2, sid, ?3 FROM session WHERE session_id = ?1",
        [(session_id, digest, place) for place, digest in enumerate(digests)],
    )


def _drop_tokens(db: sqlite3.Connection, session_id: str) -> None:
    db.execute(
        "DELETE FROM token WHERE sid = (SELECT sid FROM session WHERE session_id = ?)",
        (session_id,),
    )


def append_log(write: AppendLog, db: sqlite3.Connection) -> None:
    """Insert a batch of a log, and update the session and its watches."""
    session_id = write.session_id
    last_seqs = {item.job_id: item.last_seq for item in write.items if type(item) is Range}
    if write.items:
        db.execute(
            "INSERT INTO log (sid, last_place, row, items)"
            " SELECT sid, ?2, ?3, ?4 FROM session WHERE session_id = ?1",
            (session_id, write.items[-1].last_place, write.row, pack_items(write.items)),
        )
    db.execute(
        "UPDATE session SET top = ?, rows = ?, log_bytes = ? WHERE session_id = ?",
        (write.top, write.row + 1, write.log_bytes, session_id),
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
    if write.ended:
        db.executemany(
            "DELETE FROM watch WHERE job_id = ?2"
            " AND sid = (SELECT sid FROM session WHERE session_id = ?1)",
            [(session_id, job_id) for job_id in write.ended],
        )


def move_floor(write: MoveFloor, db: sqlite3.Connection) -> None:
    """Update a session's floor; housekeeping deletes the part of the log below it."""
    db.execute(
        "UPDATE session SET floor = ?2, acked = max(acked, ?3), log_bytes = ?4"
        " WHERE session_id = ?1",
        (write.session_id, write.floor, write.acked, write.log_bytes),
    )
    _waste_log(db, write.session_id, 2 * write.floor + 1)


def drop_session(write: DropSession, db: sqlite3.Connection) -> None:
    """Delete a session; housekeeping deletes its log."""
    _waste_log(db, write.session_id, EVERYTHING)
    db.execute(
        "DELETE FROM watch WHERE sid = (SELECT sid FROM session WHERE session_id = ?)",
        (write.session_id,),
    )
    _drop_tokens(db, write.session_id)
    db.execute("DELETE FROM session WHERE session_id = ?", (write.session_id,))


def _waste_log(db: sqlite3.Connection, session_id: str, below: int) -> None:
    db.execute(
        "INSERT INTO log_waste (sid, below)"
        " SELECT sid, ?2 FROM session WHERE session_id = ?1"
        " ON CONFLICT DO UPDATE SET below = excluded.below",
        (session_id, below),
    )
