"""Reads of sessions, jobs, keys and credentials, within the caller's transaction."""

from __future__ import annotations

import sqlite3
from typing import Final

from msgspec.structs import replace

from arcp_trio.store.records import (
    CREDENTIAL_COLUMNS,
    CredentialRow,
    JobRow,
    KeyRow,
    Recovered,
    SessionRow,
    Status,
    credential_of,
)
from arcp_trio.store.retention import ROW_BYTES
from arcp_trio.store.sqlite import _durable

_SELECT_JOBS: Final = """
    SELECT jid, job_id, agent, principal, session_id, trace_id, accepted, created_at, status,
        finished_at, length, cancelled, max(last_seq, coalesce((SELECT last_seq FROM watch
        WHERE watch.sid = job.sid AND watch.job_id = job.job_id), 0)), budget, stopped_by,
        started_at, error, spent, last_event
    FROM job WHERE """


def recover(db: sqlite3.Connection) -> Recovered:
    """Read what a runtime that starts has to know."""
    (ordinal,) = db.execute("SELECT ordinal FROM state").fetchone()
    sessions = db.execute("SELECT session_id, principal FROM session ORDER BY sid").fetchall()
    unfinished = db.execute(
        "SELECT job_id, jid, base FROM job WHERE finished_at IS NULL ORDER BY jid"
    ).fetchall()
    rows = [(job(db, job_id), jid, base) for job_id, jid, base in unfinished]
    return Recovered(
        ordinal=ordinal,
        sessions=dict(sessions),
        unfinished=[
            replace(row, length=_length(db, jid, base))
            for row, jid, base in rows
            if row is not None
        ],
        credentials=_credentials(db),
        durable=_durable.unfinished(db),
    )


def _length(db: sqlite3.Connection, jid: int, base: int) -> int:
    """Read how many entries a job's journal was given, of which the first `base` may be gone."""
    (last,) = db.execute("SELECT max(last_index) FROM journal WHERE jid = ?", (jid,)).fetchone()
    return base if last is None else last + 1


def _credentials(db: sqlite3.Connection) -> list[CredentialRow]:
    rows = db.execute(f"SELECT {CREDENTIAL_COLUMNS} FROM credential ORDER BY id")  # noqa: S608
    return list(map(credential_of, rows))


JOB_BYTES: Final = f"""length(accepted) + {ROW_BYTES}
    + (SELECT coalesce(sum(length(entries)), 0) FROM journal WHERE journal.jid = job.jid)
    + (SELECT coalesce(sum(length(key) + length(value)), 0) FROM memo WHERE memo.jid = job.jid)"""  # noqa: S608
"""What a job takes, as `share.stored_bytes` counts it."""


def stored_bytes(db: sqlite3.Connection) -> dict[str, int]:
    """Read what principals have, without the jobs that housekeeping is about to delete."""
    stored: dict[str, int] = dict(db.execute("SELECT principal, stored_bytes FROM share"))
    given_up = db.execute(
        f"SELECT principal, sum({JOB_BYTES}) FROM job WHERE expired = 1"  # noqa: S608
        " AND NOT EXISTS (SELECT 1 FROM watch WHERE watch.job_id = job.job_id) GROUP BY principal"
    )
    for principal, size in given_up:
        stored[principal] -= size
    return stored


def session(db: sqlite3.Connection, session_id: str) -> SessionRow | None:
    """Read a session, with its watches."""
    row = db.execute(
        "SELECT sid, principal, features, dialect, top, floor, rows, acked, log_bytes, client"
        " FROM session WHERE session_id = ?",
        (session_id,),
    ).fetchone()
    if row is None:
        return None
    watches = db.execute(
        "SELECT job_id, cursor, observed FROM watch WHERE sid = ?", row[:1]
    ).fetchall()
    *spare_digests, digest = db.execute(
        "SELECT digest FROM token WHERE sid = ? ORDER BY place", row[:1]
    ).fetchall()
    return SessionRow(
        session_id=session_id,
        principal=row[1],
        features=frozenset(row[2].split()),
        dialect=row[3],
        token_digest=digest[0],
        spare_digests=tuple(digest for (digest,) in spare_digests),
        top=row[4],
        floor=row[5],
        log_rows=row[6],
        acked=bool(row[7]),
        log_bytes=row[8],
        client=row[9],
        watches={job_id: cursor for job_id, cursor, _ in watches},
        observed=frozenset(job_id for job_id, _, observed in watches if observed),
    )


def session_of_token(db: sqlite3.Connection, digest: bytes) -> str | None:
    """Read the id of the session that has a resume token with this digest."""
    row = db.execute(
        "SELECT session_id FROM token JOIN session USING (sid) WHERE digest = ?", (digest,)
    ).fetchone()
    return None if row is None else row[0]


def owner(db: sqlite3.Connection, job_id: str) -> str | None:
    """Read the principal of a job, unless its retention is over."""
    row = db.execute(
        "SELECT principal FROM job WHERE job_id = ? AND expired = 0", (job_id,)
    ).fetchone()
    return None if row is None else str(row[0])


def job(db: sqlite3.Connection, job_id: str) -> JobRow | None:
    """Read a job, unless its retention is over."""
    rows = jobs(db, "job_id = ? AND expired = 0", job_id)
    return rows[0] if rows else None


def jobs(db: sqlite3.Connection, where: str, *values: object) -> list[JobRow]:
    """Read the jobs for which `where` is true."""
    rows = db.execute(_SELECT_JOBS + where, values).fetchall()
    submitters = "SELECT session_id FROM submitter WHERE jid = ?"
    return [
        JobRow(
            job_id=row[1],
            agent=row[2],
            principal=row[3],
            session_id=row[4],
            trace_id=row[5],
            accepted=row[6],
            created_at=row[7],
            status=Status(row[8]),
            finished_at=row[9],
            length=row[10],
            cancelled=row[11],
            submitters=frozenset(name for (name,) in db.execute(submitters, row[:1])),
            last_seq=row[12],
            budget=row[13],
            stopped_by=row[14],
            started_at=row[15],
            error=row[16],
            spent=row[17],
            last_event=row[18],
        )
        for row in rows
    ]


def key(db: sqlite3.Connection, principal: str, key: str, now: float) -> KeyRow | None:
    """Read what an idempotency key stands for; it lives at least as long as its job is retained."""
    row = db.execute(
        "SELECT fingerprint, job_id, accepted, expires_at FROM key"
        " WHERE principal = ?1 AND key = ?2 AND (expires_at > ?3"
        " OR EXISTS (SELECT 1 FROM retained WHERE retained.job_id = key.job_id))",
        (principal, key, now),
    ).fetchone()
    if row is None:
        return None
    return KeyRow(
        principal=principal,
        key=key,
        fingerprint=row[0],
        job_id=row[1],
        accepted=row[2],
        expires_at=row[3],
    )
