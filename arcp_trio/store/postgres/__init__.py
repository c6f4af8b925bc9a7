"""The engine for several machines, which keeps everything in a PostgreSQL database.

Modules with an underscore are internal. Only this package imports psycopg.
"""

from __future__ import annotations

from arcp_trio.extras import how_to_install

try:
    import psycopg as psycopg
except ImportError as error:
    said = f"a store in PostgreSQL needs psycopg: {how_to_install('postgres')}"
    raise ImportError(said, name="psycopg") from error

from arcp_trio.store.postgres.engine import PostgresStore
from arcp_trio.store.postgres.reader import open_read_only

__all__ = ["PostgresStore", "open_read_only"]
