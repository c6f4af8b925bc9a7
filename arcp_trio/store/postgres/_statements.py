"""Statements over many rows, whose values go to the server as arrays, a column in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString, TypeAlias

from psycopg import Cursor

from arcp_trio.store.postgres._schema import Database

Statement: TypeAlias = tuple[LiteralString, Sequence[tuple[object, ...]]]
"""A statement, and the rows that it is about. Its values are named by column: `0`, `1` and so on;
`me` is this node."""


def execute(db: Database, statement: Statement, me: int) -> Cursor[tuple[Any, ...]] | None:
    """Execute a statement, unless there is no row for it."""
    query, rows = statement
    if not rows:
        return None
    columns: dict[str, object] = {
        str(place): list(column) for place, column in enumerate(zip(*rows, strict=True))
    }
    return db.execute(query, {"me": me, **columns})
