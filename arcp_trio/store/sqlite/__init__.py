"""The durable engine, which keeps everything in one SQLite file.

Modules with an underscore are internal.
"""

from __future__ import annotations

from arcp_trio.store.sqlite.engine import SqliteStore
from arcp_trio.store.sqlite.reader import SqliteReader, open_read_only

__all__ = ["SqliteReader", "SqliteStore", "open_read_only"]
