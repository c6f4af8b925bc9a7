"""Reads of sessions, jobs, keys and credentials: each is one statement, but for `recover`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, LiteralString

from arcp_trio.store.postgres import _durable_rows
from arcp_trio.store.postgres._schema import Database
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

JOB_COLUMNS: Final = """job.job_id, agent, principal, job.session_id, trace_id, accepted,
    created_at, status, finished_at, cancelled, stopped_by, budget, started_at, error, spent,
    last_event, questions, node, base,
    CASE WHEN finished_at IS NULL THEN coalesce((SELECT last_index + 1 FROM journal
        WHERE journal.jid = job.jid ORDER BY last_index DESC LIMIT 1), base) ELSE length END,
    ARRAY(SELECT submitter.session_id FROM submitter WHERE submitter.jid = job.jid AND told),
    greatest((SELECT seq FROM last_number WHERE last_number.jid = job.jid),
        (SELECT last_seq FROM watch WHERE watch.sid = job.sid AND watch.jid = job.jid), 0)"""
"""What `job_of` makes a row of."""


def job_of(row: tuple[Any, ...]) -> JobRow:
    """Return the row of a job, read by `JOB_COLUMNS`."""
    return JobRow(
        job_id=row[0],
        agent=row[1],
        principal=row[2],
        session_id=row[3],
        trace_id=row[4],
        accepted=row[5],
        created_at=row[6],
        status=Status(row[7]),
        finished_at=row[8],
        cancelled=row[9],
        stopped_by=row[10],
        budget=row[11],
        started_at=row[12],
        error=row[13],
        spent=row[14],
        last_event=row[15],
        questions=row[16],
        node=row[17],
        base=row[18],
        length=row[19],
        submitters=frozenset(row[20]),
        last_seq=row[21],
    )


def recover(db: Database, me: int) -> Recovered:
    """Read what a runtime that starts has to know, within the caller's transaction.

    Sessions are parked in the database: a node needs only those that have submitted its jobs. Node
    0, which stands for a mere reader, sees all.
    """
    jobs = unfinished(db, me)
    return Recovered(
        ordinal=highest_ordinal(db),
        sessions=submitters(db, jobs) if me else _sessions(db),
        unfinished=jobs,
        credentials=credentials(db, me),
        durable=_durable_rows.unfinished(db, me),
    )


def submitters(db: Database, jobs: Iterable[JobRow]) -> dict[str, str]:
    """Read which sessions that have submitted these jobs exist, and their principals."""
    names = {name for row in jobs for name in (row.session_id, *row.submitters)}
    sessions = db.execute(
        "SELECT session_id, principal FROM session WHERE session_id = ANY(%s) ORDER BY sid",
        (sorted(names),),
    )
    return dict(sessions.fetchall())


def _sessions(db: Database) -> dict[str, str]:
    return dict(db.execute("SELECT session_id, principal FROM session ORDER BY sid").fetchall())


def highest_ordinal(db: Database) -> int:
    """Read the highest ordinal of any entry."""
    (ordinal,) = db.execute("SELECT max(ordinal) FROM node").fetchone() or (0,)
    return int(ordinal)


def unfinished(db: Database, me: int, among: Collection[str] | None = None) -> list[JobRow]:
    """Read the jobs of a node that have not ended, or some of them, parents before children."""
    wanted = None if among is None else list(among)
    rows = db.execute(
        f"""SELECT {JOB_COLUMNS} FROM job
        WHERE finished_at IS NULL AND node = %s AND (%s::text[] IS NULL OR job_id = ANY(%s))
        ORDER BY jid""",  # noqa: S608
        (me, wanted, wanted),
        binary=True,
    )
    return [job_of(row) for row in rows.fetchall()]


def credentials(db: Database, me: int) -> list[CredentialRow]:
    """Read the credentials of a node's jobs, and those that it has to revoke, oldest first."""
    query = f"SELECT {CREDENTIAL_COLUMNS} FROM credential WHERE node = %s ORDER BY id"  # noqa: S608
    # As bytes, since psycopg wants texts to be literal.
    rows = db.execute(query.encode(), (me,))
    return list(map(credential_of, rows))


JOB_BYTES: Final = f"""(length(accepted) + {ROW_BYTES}
    + (SELECT coalesce(sum(length(entries)), 0) FROM journal WHERE journal.jid = job.jid)
    + (SELECT coalesce(sum(length(key) + length(value)), 0) FROM memo
       WHERE memo.jid = job.jid))::bigint"""  # noqa: S608
"""What a job takes, as `share.stored_bytes` counts it."""

UNWATCHED: Final = "expired AND NOT EXISTS (SELECT 1 FROM watch WHERE watch.jid = job.jid)"
"""Whether a job can no longer be read, and waits to be deleted."""


def stored_bytes(db: Database) -> dict[str, int]:
    """Read what principals have, without the jobs that housekeeping is about to delete."""
    rows = db.execute(
        f"""
        SELECT principal, sum(size)::bigint FROM (
            SELECT principal, stored_bytes AS size FROM share
            UNION ALL SELECT principal, -{JOB_BYTES} FROM job WHERE {UNWATCHED}
        ) AS booked GROUP BY principal ORDER BY principal""".encode()  # noqa: S608
    )
    return dict(rows.fetchall())


SESSION_COLUMNS: Final = """session.session_id, principal, features, dialect, top, floor, rows,
    acked, log_bytes, moves,
    ARRAY(SELECT digest FROM token WHERE token.sid = session.sid ORDER BY place),
    watched.job_ids, watched.cursors, watched.observed, client"""
"""What `session_of` makes a row of, if `SESSIONS` are read."""

SESSIONS: Final = """session LEFT JOIN LATERAL (
        SELECT array_agg(job_id ORDER BY job_id) AS job_ids,
            array_agg(cursor ORDER BY job_id) AS cursors,
            array_agg(observed ORDER BY job_id) AS observed
        FROM watch JOIN job USING (jid) WHERE watch.sid = session.sid
    ) AS watched ON true"""


def session(db: Database, session_id: str) -> SessionRow | None:
    """Read a session, with its watches."""
    row = db.execute(
        f"SELECT {SESSION_COLUMNS} FROM {SESSIONS} WHERE session_id = %s",  # noqa: S608
        (session_id,),
        binary=True,
    ).fetchone()
    return None if row is None else session_of(row)


def session_of(row: tuple[Any, ...]) -> SessionRow:
    """Return a session, read by `SESSION_COLUMNS`."""
    *spare_digests, digest = row[10]
    job_ids: list[str] = row[11] or []
    return SessionRow(
        session_id=row[0],
        principal=row[1],
        features=frozenset(row[2].split()),
        dialect=row[3],
        token_digest=digest,
        spare_digests=tuple(spare_digests),
        top=row[4],
        floor=row[5],
        log_rows=row[6],
        acked=row[7],
        log_bytes=row[8],
        moves=row[9],
        watches=dict(zip(job_ids, row[12] or [], strict=True)),
        observed=frozenset(
            job_id for job_id, observed in zip(job_ids, row[13] or [], strict=True) if observed
        ),
        client=row[14],
    )


def session_of_token(db: Database, digest: bytes) -> str | None:
    """Read the id of the session that has a resume token with this digest."""
    return _one(
        db, "SELECT session_id FROM token JOIN session USING (sid) WHERE digest = %s", digest
    )


def owner(db: Database, job_id: str) -> str | None:
    """Read the principal of a job, unless its retention is over."""
    return _one(db, "SELECT principal FROM job WHERE job_id = %s AND NOT expired", job_id)


def _one(db: Database, statement: LiteralString, value: object) -> str | None:
    row = db.execute(statement, (value,)).fetchone()
    return None if row is None else row[0]


def job(db: Database, job_id: str) -> JobRow | None:
    """Read a job, unless its retention is over."""
    row = db.execute(
        f"SELECT {JOB_COLUMNS} FROM job WHERE job_id = %s AND NOT expired",  # noqa: S608
        (job_id,),
        binary=True,
    ).fetchone()
    return None if row is None else job_of(row)


def key(db: Database, principal: str, key: str, now: float) -> KeyRow | None:
    """Read what an idempotency key stands for; it lives at least as long as its job is retained.

    One that is only claimed stands for nothing yet.
    """
    row = db.execute(
        """SELECT fingerprint, job_id, accepted, expires_at FROM key
        WHERE principal = %s AND key = %s AND accepted IS NOT NULL AND (expires_at > %s
            OR EXISTS (SELECT 1 FROM retained WHERE retained.job_id = key.job_id))""",
        (principal, key, now),
        binary=True,
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
