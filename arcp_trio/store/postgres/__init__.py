"""The engine for several machines, which keeps everything in a PostgreSQL database.

Modules with an underscore are internal. Only this package imports psycopg.
"""

from __future__ import annotations

from arcp_trio.store.postgres.engine import PostgresStore

__all__ = ["PostgresStore"]
