"""Statements over many rows, whose values go to the server as arrays, a column in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString, TypeAlias

from psycopg import Cursor

from arcp_trio.store.postgres._schema import Database

Rows: TypeAlias = Sequence[tuple[object, ...]]

Statement: TypeAlias = tuple[LiteralString, Rows]
"""A statement, and the rows that it is about. Its values are named by column: `0`, `1` and so on;
`me` is this node."""


def execute(db: Database, statement: Statement, me: int) -> Cursor[tuple[Any, ...]] | None:
    """Execute a statement, unless there is no row for it."""
    query, rows = statement
    if not rows:
        return None
    return db.execute(query, {"me": me, **columns(rows)})


def plan_anew(db: Database) -> None:
    """Have statements planned for their values, until the end of the transaction.

    The best way to find rows within a range of times depends on the range.
    """
    db.execute("SELECT set_config('plan_cache_mode', 'force_custom_plan', true)")


def columns(rows: Rows, first: int = 0, *, width: int = 0) -> dict[str, object]:
    """Return columns by number, from `first` on; without a row there are `width` empty ones."""
    found: list[Sequence[object]] = list(zip(*rows, strict=True)) or [()] * width
    return {str(place): _of_one_type(column) for place, column in enumerate(found, first)}


def _of_one_type(column: Sequence[object]) -> list[object]:
    """Return the values of a column, all as floats if some are: psycopg refuses arrays of both.

    Python takes a whole number for a float, as a limit of 600 seconds is.
    """
    if float in map(type, column):
        return [float(value) if type(value) is int else value for value in column]
    return list(column)
