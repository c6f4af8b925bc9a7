"""What principals have is booked by triggers, at a cost that grows with what is changed."""

from __future__ import annotations

from typing import Any, Final, LiteralString, TypeAlias

import psycopg
import pytest

from arcp_trio.store.postgres.administering import make_schema

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

ROWS: Final = 30_000
SECONDS: Final = 30
"""A hundred times what it takes to change that many rows, and a fraction of what it would take to
look at all of them for each."""

Statements: TypeAlias = tuple[LiteralString, LiteralString]

SESSIONS: Final[Statements] = (
    """INSERT INTO session (session_id, principal, features, dialect, top, floor, rows, acked,
        log_bytes, node) SELECT n, 'bob', '', '', 0, 0, 0, false, 0, 0
        FROM generate_series(1, %s) AS n""",
    "UPDATE session SET log_bytes = log_bytes + 7 WHERE sid <= %s",
)
JOBS: Final[Statements] = (
    """INSERT INTO job (job_id, agent, principal, session_id, trace_id, accepted, created_at,
        status, length, node) SELECT n, 'a@1', 'bob', n, '', '', 0, 'running', 0, 0
        FROM generate_series(1, %s) AS n""",
    "UPDATE job SET finished_at = 1 WHERE jid <= %s",
)
KEYS: Final[Statements] = (
    """INSERT INTO key (principal, key, fingerprint, job_id, expires_at)
        SELECT 'bob', n, '', n, n FROM generate_series(1, %s) AS n""",
    "UPDATE key SET accepted = 'seven b' WHERE expires_at <= %s AND accepted IS NULL",
)
MEMOS: Final[Statements] = (
    """WITH mine AS (INSERT INTO job (job_id, agent, principal, session_id, trace_id, accepted,
            created_at, status, length, node)
        VALUES (1, 'a@1', 'bob', 1, '', '', 0, 'running', 0, 0) RETURNING jid)
        INSERT INTO memo (jid, key, kind, first_index, value)
        SELECT 1, n, 'step', n, '' FROM generate_series(1, %s) AS n""",
    "UPDATE memo SET value = value || 'seven b' WHERE id <= %s",
)


def booked(db: psycopg.Connection[Any]) -> tuple[int, int]:
    """Return how many finished jobs, and how many bytes, the principal has."""
    row = db.execute("SELECT sum(finished_jobs), sum(stored_bytes) FROM share").fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


@pytest.mark.parametrize(
    ("statements", "jobs", "size"),
    [(SESSIONS, 0, 7), (JOBS, 1, 0), (KEYS, 0, 7), (MEMOS, 0, 7)],
    ids=["sessions", "jobs", "keys", "memos"],
)
def test_many_rows_change_at_once(
    database: str, statements: Statements, jobs: int, size: int
) -> None:
    """A plan that a trigger made for one row does for many, and what they change is booked."""
    make_schema(database, None)
    fill, change = statements
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("SET search_path = arcp")
        db.execute(fill, (ROWS,))
        db.execute(f"SET statement_timeout = '{SECONDS}s'".encode())
        finished, stored = booked(db)
        db.execute(change, (1,))
        assert booked(db) == (finished + jobs, stored + size)
        db.execute(change, (ROWS,))
        times = {SESSIONS: ROWS + 1, MEMOS: ROWS + 1}.get(statements, ROWS)
        assert booked(db) == (finished + jobs * times, stored + size * times)
