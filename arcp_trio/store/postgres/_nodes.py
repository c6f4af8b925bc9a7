"""How a node joins the others, and leaves them."""

from __future__ import annotations

from typing import Final

from arcp_trio.store.postgres._address import DatabaseAddress
from arcp_trio.store.postgres._connections import application_name
from arcp_trio.store.postgres._schema import Database

TERMINATE_MILLISECONDS: Final = 2_000
"""How long to wait for the end of a gone node's connections."""


def join(db: Database, address: DatabaseAddress, name: str, version: str) -> tuple[int, int]:
    """Insert the row of a new node; return its number, and that of its last group.

    A node that has the name is fenced, and the new one has what it had.
    """
    for (older,) in db.execute(
        "SELECT node FROM node WHERE name = %s AND state <> 'gone'", (name,)
    ).fetchall():
        terminate(db, address, older)
    with db.transaction():
        gone = db.execute(
            "UPDATE node SET state = 'gone', at = now() WHERE name = %s AND state <> 'gone'"
            " RETURNING node",
            (name,),
        ).fetchall()
        row = db.execute(
            "INSERT INTO node (name, version) VALUES (%s, %s) RETURNING node, committed",
            (name, version),
        ).fetchone()
        assert row is not None
        me, committed = row
        db.execute("INSERT INTO beat (node) VALUES (%s)", (me,))
        for (older,) in gone:
            inherit(db, older, me)
    return me, committed


def terminate(db: Database, address: DatabaseAddress, node: int) -> None:
    """End the connections of a node: one that stands still within a transaction holds locks."""
    db.execute(
        "SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity"
        " WHERE application_name = %s AND datname = current_database() AND usename = current_user"
        " AND pid <> pg_backend_pid()",
        (TERMINATE_MILLISECONDS, application_name(address, node)),
    )


def inherit(db: Database, older: int, me: int) -> None:
    """Give a gone node's rows to this one, and park its sessions, in the caller's transaction."""
    db.execute("UPDATE job SET node = %s WHERE node = %s AND finished_at IS NULL", (me, older))
    db.execute("UPDATE session SET node = NULL, parked_until = NULL WHERE node = %s", (older,))
    db.execute("UPDATE credential SET node = %s WHERE node = %s", (me, older))
    db.execute("UPDATE command SET node = %s WHERE node = %s AND answer IS NULL", (me, older))
    db.execute("DELETE FROM key WHERE node = %s AND accepted IS NULL", (older,))
    db.execute("DELETE FROM follow WHERE node = %s", (older,))


def leave(db: Database, me: int) -> None:
    """Say that this node is over; nothing of it may be left."""
    db.execute("UPDATE node SET state = 'gone', at = now() WHERE node = %s", (me,))
    db.execute("DELETE FROM follow WHERE node = %s", (me,))
