"""Sessions on their way between nodes: where one is, how it is stolen, and what it was not told."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import psycopg

from arcp_trio.store.postgres._address import DatabaseAddress
from arcp_trio.store.postgres._connections import application_name, member_transaction
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.shared import SessionPlace, UntoldJob

STEAL_MILLISECONDS: Final = 200
"""How long the row of a session may be locked before the node that locks it is cut off."""

TERMINATE_MILLISECONDS: Final = 2_000
"""How long to wait for the end of a connection."""

_PLACE: Final = """
    SELECT session.node, moves, extract(epoch FROM parked_until - now())::float8, beats
    FROM session LEFT JOIN beat USING (node) WHERE session_id = %s"""

_STEAL: Final = """
    UPDATE session SET node = %(me)s, parked_until = NULL, moves = moves + 1
    WHERE session_id = %(session_id)s AND node = %(node)s AND moves = %(moves)s"""

# Those that do nothing hold no lock.
_TERMINATE: Final = """
    SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity
    WHERE application_name = %s AND datname = current_database() AND usename = current_user
        AND state <> 'idle' AND pid <> pg_backend_pid()"""

_UNTOLD: Final = """
    SELECT job_id, accepted, request_id FROM submitter JOIN job USING (jid)
    WHERE submitter.session_id = %s AND NOT told AND NOT expired ORDER BY jid"""


def place(db: Database, session_id: str) -> SessionPlace | None:
    """Read which node has a session, and until when it can be resumed if none has."""
    row = db.execute(_PLACE, (session_id,)).fetchone()
    return None if row is None else SessionPlace(*row)


def steal(
    db: Database, address: DatabaseAddress, session_id: str, node: int, moves: int, me: int
) -> bool:
    """Update a session to be this node's; return whether it was where it had been found.

    A node that stands still in the middle of a group has the session's row locked. Its connections
    are ended, and with them its locks. If another node has it locked, it is that one's soon.
    """
    names = {"me": me, "session_id": session_id, "node": node, "moves": moves}
    try:
        return _steal(db, me, names)
    except psycopg.errors.LockNotAvailable:
        db.execute(_TERMINATE, (TERMINATE_MILLISECONDS, application_name(address, node)))
        with suppress(psycopg.errors.LockNotAvailable):
            return _steal(db, me, names)
        return False


def _steal(db: Database, me: int, names: Mapping[str, object]) -> bool:
    with member_transaction(db, me):
        db.execute(f"SET LOCAL lock_timeout = {STEAL_MILLISECONDS}".encode())
        return db.execute(_STEAL, names).rowcount == 1


def sessions_of(db: Database, node: int) -> list[str]:
    """Read the ids of a node's sessions."""
    rows = db.execute("SELECT session_id FROM session WHERE node = %s", (node,))
    return [session_id for (session_id,) in rows.fetchall()]


def untold(db: Database, session_id: str) -> list[UntoldJob]:
    """Read the jobs that were accepted in a session whose log has no promise of them."""
    return [UntoldJob(*row) for row in db.execute(_UNTOLD, (session_id,), binary=True).fetchall()]
