"""Databases with an empty store each, which tests use one after the other."""

from __future__ import annotations

import atexit
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import sql

from arcp_trio.store.postgres import _schema
from tests.postgres import fresh_database

Database: TypeAlias = psycopg.Connection[tuple[Any, ...]]

SCHEMA: Final = "arcp"
UNCOUNTED: Final = ("schema", "node", "beat", "signing")
"""Tables that traffic does not fill."""

_made = ExitStack()
atexit.register(_made.close)
_free: list[str] = []
"""URLs of databases of this process that no test uses."""


@contextmanager
def empty_store() -> Generator[str]:
    """Provide the URL of a database with an empty store; to make one takes longer than to empty it.

    Raises:
        PostgresMissingError: this machine has no PostgreSQL.
    """
    url = _free.pop() if _free else _make()
    try:
        yield url
    finally:
        with psycopg.connect(url, autocommit=True) as db:
            # In this role no trigger is called.
            db.execute("SET session_replication_role = replica")
            names = _tables(db)
            names.remove("schema")
            db.execute(
                sql.SQL(";").join(
                    sql.SQL("DELETE FROM {}").format(sql.Identifier(SCHEMA, name)) for name in names
                )
            )
        _free.append(url)


@contextmanager
def copy(url: str) -> Generator[str]:
    """Provide the URL of a copy of a store, as another start finds it after a kill."""
    with empty_store() as copied, psycopg.connect(url) as source, psycopg.connect(copied) as target:
        source.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        target.execute("SET session_replication_role = replica")
        for name in set(_tables(source)) - {"schema"}:
            table = sql.Identifier(SCHEMA, name)
            with (
                source.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(table)) as read,
                target.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(table)) as written,
            ):
                for piece in read:
                    written.write(piece)
        numbered = target.execute(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = %s AND is_identity = 'YES'",
            (SCHEMA,),
        )
        last = "SELECT setval(pg_get_serial_sequence(%s, %s), coalesce(max({}), 0) + 1) FROM {}"
        for name, column in numbered.fetchall():
            target.execute(
                sql.SQL(last).format(sql.Identifier(column), sql.Identifier(SCHEMA, name)),
                (f"{SCHEMA}.{name}", column),
            )
        target.commit()
        yield copied


def _make() -> str:
    url = _made.enter_context(fresh_database())
    with psycopg.connect(url) as db:
        _schema.migrate(db, SCHEMA)
    return url


def _tables(db: Database) -> list[str]:
    rows = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (SCHEMA,))
    return [name for (name,) in rows.fetchall()]


def row_counts(db: Database) -> dict[str, int]:
    """Return how many rows each table has that traffic fills, without the empty ones."""
    counts: dict[str, int] = {}
    for name in _tables(db):
        row = db.execute(
            sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(SCHEMA, name))
        ).fetchone()
        assert row is not None
        if row[0] and name not in UNCOUNTED:
            counts[name] = row[0]
    return counts
