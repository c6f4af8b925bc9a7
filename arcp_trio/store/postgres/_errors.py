"""What is wrong with a database, in words that say what helps."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import psycopg

from arcp_trio.store.errors import DiskFull, StoreError
from arcp_trio.store.postgres._address import DatabaseAddress

FENCED: Final = "ARCP1"
"""The state with which `fence` and `member` say that a node is gone."""

POOLED: Final = (
    "a connection pooler shares connections between transactions;"
    " use its session mode, or connect to the server itself"
)

_WORDS: Final = {
    "without TLS": "the server does not encrypt; have it do so, or say sslmode=disable",
    "not trusted": "the server's certificate is not trusted; name its authority by sslrootcert",
    "no home": "libpq cannot look into the home folder; set HOME to one that it can read",
    "08P01": "a connection pooler does not let settings through; connect to the server itself",
    "25006": "the database is read-only; connect to the primary server",
    "26000": POOLED,
    "42P05": POOLED,
    "28000": "the role may not connect; look at the server's roles and its pg_hba.conf",
    "28P01": "the password is wrong, or there is no such role",
    "no password": "the role needs a password; give it in the address, PGPASSWORD or PGPASSFILE",
    "closed": "the role may not connect to this database; let it by GRANT CONNECT ON DATABASE",
    "3D000": "there is no such database; create it, then run `arcp-trio store init`",
    "3F000": "the schema is gone; run `arcp-trio store init`",
    "42501": "the role has lost privileges; run `arcp-trio store init --role` again",
    "42P01": "tables of the store are gone; restore them from a backup",
    "42703": "columns of the store are gone; this is another version's schema",
    "42883": "functions of the store are gone; this is another version's schema",
    "40P01": "two transactions have waited for each other",
    "53100": "the server's disk is full; make room on it",
    "53200": "the server is out of memory",
    "53300": "the server has no connection left; raise its max_connections, or connect less",
    "53400": "a limit of the server is reached",
    "55P03": "another transaction has held a lock for too long",
    "57P01": "an administrator has ended the connection, or the server shuts down",
    "57P02": "the server has crashed and starts again",
    "57P03": "the server starts, or shuts down",
    "57P05": "the server has ended a connection on which nothing happened",
    "25P03": "the server has ended a transaction in which nothing happened",
    "25P04": "the server has ended a transaction that took too long",
}
"""What is wrong, by SQLSTATE; what has none is named in words."""

_DISK_FULL: Final = "53100"
_SURROUNDINGS: Final = ("08", "40", "53", "55", "57", "58", "XX001", "XX002", "0A000")
"""SQLSTATEs that begin so are about the server, too; all others are mistakes of this program."""

_AT_THE_DOOR: Final = {
    "session is read-only": "25006",
    "too many connections": "53300",
    "too many clients": "53300",
    "remaining connection slots": "53300",
    "password authentication failed": "28P01",
    "no password supplied": "no password",
    "pg_hba.conf": "28000",
    "not permitted to log in": "28000",
    'role "': "28000",
    "permission denied for database": "closed",
    'database "': "3D000",
    "starting up": "57P03",
    "shutting down": "57P03",
    "not yet accepting connections": "57P03",
    "unsupported startup parameter": "08P01",
    "server does not support SSL": "without TLS",
    "could not open certificate file": "no home",
    "certificate": "not trusted",
}
"""What is said when a connection cannot be made, and what it means: libpq hands no SQLSTATE on."""


@contextmanager
def store_errors(address: DatabaseAddress) -> Generator[None]:
    """Raise errors of the database as `StoreError`."""
    try:
        yield
    except psycopg.Error as error:
        words = words_of(error)
        if words is None:
            raise
        full = error.sqlstate == _DISK_FULL
        raise (DiskFull if full else StoreError)(f"{address}: {words}") from error


def words_of(error: psycopg.Error) -> str | None:
    """Return what is wrong with the database; None if it is a mistake of this program."""
    state = error.sqlstate
    said = " ".join(str(error.diag.message_primary or error).split())
    if state in _WORDS:
        return f"{_WORDS[state]} ({said})"
    if state is None:
        if not isinstance(error, psycopg.OperationalError):
            return None
        for words, meant in _AT_THE_DOOR.items():
            if words in said:
                return f"{_WORDS[meant]} ({said})"
        return f"the server cannot be reached ({said})"
    if state.startswith(_SURROUNDINGS):
        return said
    return None
