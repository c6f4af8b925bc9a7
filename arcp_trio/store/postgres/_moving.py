"""Sessions on their way between nodes: where one is, how it is taken, and what it was not told."""

from __future__ import annotations

from typing import Final

from arcp_trio.store.postgres._address import DatabaseAddress
from arcp_trio.store.postgres._connections import application_name, member_transaction
from arcp_trio.store.postgres._rows import SESSION_COLUMNS, SESSIONS, session_of
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.shared import FoundSession, SessionPlace, UntoldJob

LOCK_MILLISECONDS: Final = 3_000
"""How long to wait for what has a session locked: a node that stands still is cut off by then."""

_PLACE_COLUMNS: Final = """session.node, session.moves,
    extract(epoch FROM parked_until - now())::float8,
    (SELECT beats FROM beat WHERE beat.node = session.node)"""

_PLACE: Final = f"SELECT {_PLACE_COLUMNS} FROM session WHERE session_id = %s"  # noqa: S608

_FIND: Final = f"""
    SELECT {_PLACE_COLUMNS}, untold.job_ids, untold.accepted, untold.request_ids, {SESSION_COLUMNS}
    FROM {SESSIONS} LEFT JOIN LATERAL (
        SELECT array_agg(job_id ORDER BY jid) AS job_ids,
            array_agg(accepted ORDER BY jid) AS accepted,
            array_agg(request_id ORDER BY jid) AS request_ids
        FROM submitter JOIN job USING (jid)
        WHERE submitter.session_id = session.session_id AND NOT told AND NOT expired
    ) AS untold ON true
    WHERE session.session_id = %s"""  # noqa: S608

_TAKE: Final = """
    UPDATE session SET node = %(me)s, parked_until = NULL, moves = moves + 1
    WHERE session_id = %(session_id)s AND node IS NOT DISTINCT FROM %(node)s
        AND moves = %(moves)s
    RETURNING 1"""

_CONNECTED: Final = """
    SELECT 1 FROM pg_stat_activity WHERE application_name = %s
        AND datname = current_database() AND usename = current_user LIMIT 1"""


def place(db: Database, session_id: str) -> SessionPlace | None:
    """Read which node has a session, and until when it can be resumed if none has."""
    row = db.execute(_PLACE, (session_id,)).fetchone()
    return None if row is None else SessionPlace(*row)


def find(db: Database, session_id: str) -> FoundSession | None:
    """Read a session, where it is, and the jobs of which its log has no promise."""
    row = db.execute(_FIND, (session_id,), binary=True).fetchone()
    if row is None:
        return None
    columns = [column or () for column in row[4:7]]
    untold = [UntoldJob(*each) for each in zip(*columns, strict=True)]
    return FoundSession(session_of(row[7:]), SessionPlace(*row[:4]), untold)


def is_connected(db: Database, address: DatabaseAddress, node: int) -> bool:
    """Read whether a node has connections to the server."""
    return db.execute(_CONNECTED, (application_name(address, node),)).fetchone() is not None


def take_when_unlocked(
    db: Database, session_id: str, node: int | None, moves: int, me: int
) -> bool:
    """Update a session to be this node's; return whether it was where it had been found.

    Raises:
        psycopg.errors.LockNotAvailable: something else than a node has it locked for too long.
    """
    names = {"me": me, "session_id": session_id, "node": node, "moves": moves}
    with member_transaction(db, me):
        db.execute(f"SET LOCAL lock_timeout = {LOCK_MILLISECONDS}".encode())
        return db.execute(_TAKE, names).fetchone() is not None


def sessions_of(db: Database, node: int) -> list[str]:
    """Read the ids of a node's sessions."""
    rows = db.execute("SELECT session_id FROM session WHERE node = %s", (node,))
    return [session_id for (session_id,) in rows.fetchall()]
