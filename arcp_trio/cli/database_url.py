"""What the command line sees of the address of a database; only libpq reads all of it."""

from __future__ import annotations

import re
from typing import Final

_URL: Final = re.compile("postgres(ql)?://")
_PASSWORD: Final = re.compile("postgres(ql)?://[^/?@]*:[^@]*@|[?& ]password *=|^password *=")


def is_database_url(address: str) -> bool:
    """Return whether an address is a URL of PostgreSQL."""
    return _URL.match(address) is not None


def has_password(address: str) -> bool:
    """Return whether an address has a password in it."""
    return _PASSWORD.search(address) is not None
