"""Nodes as rows: how one joins, gives signs of life, and leaves.

Each function works on a connection whose transactions are begun and ended by hand.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from typing import Any, Final

from psycopg.errors import UniqueViolation

from arcp_trio.store.nodes import NodeRow, NodeState, RollCall
from arcp_trio.store.postgres._address import DatabaseAddress
from arcp_trio.store.postgres._adopting import take_over
from arcp_trio.store.postgres._checks import clock_offset
from arcp_trio.store.postgres._connections import application_name
from arcp_trio.store.postgres._schema import Database

KEY_BYTES: Final = 32

TERMINATE_MILLISECONDS: Final = 2_000
"""How long to wait for a connection of a dead node to end."""

_NODES: Final = """SELECT node, name, state, version, coalesce(beats, 0),
    extract(epoch FROM at)::float8 FROM node LEFT JOIN beat USING (node)"""


def join(
    db: Database, address: DatabaseAddress, name: str, version: str, window: float
) -> tuple[int, int]:
    """Enter a new node; return its number, and that of its last group.

    It takes over from an older node of its name, whose sessions can be resumed for `window`
    seconds.
    """
    while True:
        for older in db.execute(
            "SELECT node FROM node WHERE name = %s AND state <> 'gone'", (name,)
        ).fetchall():
            terminate(db, address, *older)
        with suppress(UniqueViolation):  # another node has joined under this name meanwhile
            return _replace(db, name, version, window)


def _replace(db: Database, name: str, version: str, window: float) -> tuple[int, int]:
    with db.transaction():
        replaced = db.execute(
            "UPDATE node SET state = 'gone', at = now() WHERE name = %s AND state <> 'gone'"
            " RETURNING node",
            (name,),
        ).fetchall()
        joined = db.execute(
            "INSERT INTO node (name, version) VALUES (%s, %s) RETURNING node, committed",
            (name, version),
        ).fetchone()
        assert joined is not None
        me, committed = joined
        db.execute("INSERT INTO beat (node) VALUES (%s)", (me,))
        for (older,) in replaced:
            take_over(db, me, older, window)
    return me, committed


def signing_key(db: Database) -> bytes:
    """Return the key of all nodes, which the first one makes."""
    made = secrets.token_bytes(KEY_BYTES)
    db.execute("INSERT INTO signing VALUES (true, %s) ON CONFLICT DO NOTHING", (made,))
    row = db.execute("SELECT key FROM signing").fetchone()
    assert row is not None
    key: bytes = row[0]
    return key


def terminate(db: Database, address: DatabaseAddress, node: int) -> None:
    """End the connections of a node, which may hold locks although the node stands still.

    If it is alive after all, it connects again.
    """
    db.execute(
        "SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity"
        " WHERE application_name = %s AND datname = current_database() AND usename = current_user"
        " AND pid <> pg_backend_pid()",
        (TERMINATE_MILLISECONDS, application_name(address, node)),
    )


def wait_for_own(db: Database, me: int) -> None:
    """Wait until every transaction of a node has ended that was under way.

    Each of them has the node's row locked.
    """
    db.execute("SELECT FROM node WHERE node = %s FOR UPDATE", (me,))


def beat(db: Database, me: int, *, alive: bool) -> RollCall | None:
    """Give a sign of life, if `alive`, and see all nodes; None if this one is gone."""
    began = time.monotonic()
    beaten = db.execute("UPDATE beat SET beats = beats + %s WHERE node = %s", (int(alive), me))
    offset = clock_offset(db)
    rows = db.execute(f"{_NODES} WHERE state <> 'gone' ORDER BY node").fetchall()
    if not beaten.rowcount:
        return None
    return RollCall(
        began=began,
        ended=time.monotonic(),
        nodes=[_node_of(row) for row in rows],
        ahead=offset.ahead,
    )


def nodes(db: Database) -> list[NodeRow]:
    """Read all nodes, those that are gone last."""
    rows = db.execute(f"{_NODES} ORDER BY state = 'gone', node")
    return [_node_of(row) for row in rows.fetchall()]


def _node_of(row: tuple[Any, ...]) -> NodeRow:
    return NodeRow(
        node=row[0],
        name=row[1],
        state=NodeState(row[2]),
        version=row[3],
        beats=row[4],
        since=row[5],
    )


def drain(db: Database, me: int) -> None:
    """Let the other nodes know that this one is about to end."""
    db.execute("UPDATE node SET state = 'draining', at = now() WHERE node = %s", (me,))


def leave(db: Database, me: int, window: float) -> None:
    """Be gone, unless there is something that another node has to adopt."""
    left = db.execute(
        """UPDATE node SET state = 'gone', at = now() WHERE node = %(me)s AND state <> 'gone'
        AND NOT EXISTS (SELECT FROM job WHERE job.node = %(me)s AND finished_at IS NULL)
        AND NOT EXISTS (SELECT FROM credential WHERE credential.node = %(me)s)
        RETURNING 1""",
        {"me": me},
    )
    if left.fetchone():
        take_over(db, me, me, window)
