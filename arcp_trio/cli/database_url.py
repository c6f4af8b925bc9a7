"""What the command line sees of the address of a database; only libpq reads all of it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_URL: Final = re.compile("postgres(ql)?://")
_PASSWORD: Final = re.compile("postgres(ql)?://[^/?@]*:[^@]*@|[?& ]password *=|^password *=")

_SECRET_FILE: Final = re.compile(r"[?&\s](?:passfile|sslkey|servicefile) *= *'?([^&'\s]+)")
_SECRET_FILES: Final = ("PGPASSFILE", "PGSSLKEY", "PGSERVICEFILE")
"""Variables that name files with secrets in them."""


def secret_files(address: str) -> list[str]:
    """Return the files in which libpq finds secrets for an address."""
    named = [unquote(path) for path in _SECRET_FILE.findall(address)]
    home = Path.home()
    usual = [home / ".pgpass", home / ".pg_service.conf", home / ".postgresql"]
    return [
        *named,
        *(os.environ[name] for name in _SECRET_FILES if name in os.environ),
        *map(str, usual),
    ]


def is_database_url(address: str) -> bool:
    """Return whether an address is a URL of PostgreSQL."""
    return _URL.match(address) is not None


def has_password(address: str) -> bool:
    """Return whether an address has a password in it."""
    return _PASSWORD.search(address) is not None
