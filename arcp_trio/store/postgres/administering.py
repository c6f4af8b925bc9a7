"""What an administrator does: make the schema, migrate it, check the database, list the nodes.

These functions block. They need no node, and disturb none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs
import psycopg
from psycopg import sql

from arcp_trio.store.errors import ForeignFile, OtherVersion, StoreError
from arcp_trio.store.postgres._address import DatabaseAddress, address_of
from arcp_trio.store.postgres._checks import (
    VERSION,
    check_rights,
    check_schema,
    check_server,
    check_writable,
    clock_offset,
)
from arcp_trio.store.postgres._errors import store_errors
from arcp_trio.store.postgres._schema import Database, grant, migrate, versions

SCHEMA: Final = "arcp"
CONNECTIONS_OF_A_NODE: Final = 7
"""One that writes, two that read, one for what goes between nodes, two for wake-ups, one beats."""

_NODES: Final = """
    SELECT node, name, state, version, extract(epoch FROM at)::float8,
        extract(epoch FROM clock_timestamp() - beat_at)::float8,
        (SELECT count(*) FROM session WHERE session.node = node.node),
        (SELECT count(*) FROM job WHERE job.node = node.node AND finished_at IS NULL)
    FROM node LEFT JOIN beat USING (node) WHERE state <> 'gone' OR %s ORDER BY name, node"""

_DURABILITY: Final = """
    SELECT current_setting('fsync')::boolean, current_setting('synchronous_commit'),
        current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication)"""

_ROOM: Final = """
    SELECT current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int
        - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')"""


@attrs.frozen
class NodeListing:
    """A node, as `arcp-trio nodes` shows it."""

    node: int
    name: str
    state: str
    version: str
    since: float
    beat_seconds: float | None
    """How long ago it gave a sign of life; None if it is gone."""
    sessions: int
    jobs: int


@attrs.frozen
class Finding:
    """What a check has found."""

    about: str
    told: str
    good: bool = True


def make_schema(dsn: str, role: str | None) -> str:
    """Make the schema, and let a role use it; return what was done, in words.

    Raises:
        StoreError: it cannot be made, or is another version's.
    """
    with _as_owner(dsn) as (db, address):
        check_server(db, address)
        _refuse_others(db, address)
        found = versions(db)
        if found is None:
            _refuse_foreign(db)
            migrate(db, SCHEMA)
            done = f"schema {SCHEMA} made in {address}, version {VERSION}"
        elif found[0] < VERSION:
            raise OtherVersion(
                f"schema {SCHEMA} in {address} has version {found[0]}, and this program"
                f" {VERSION}: run `arcp-trio store migrate`"
            )
        else:
            done = f"schema {SCHEMA} is in {address} already, version {found[0]}"
        if role is not None:
            _have_role(db, address, role)
            grant(db, SCHEMA, role)
            done += f"; role {role} may use it"
    return done


def migrate_schema(dsn: str) -> str:
    """Bring the schema to this program's version; return what was done, in words.

    Raises:
        StoreError: there is no schema, or it cannot be migrated.
    """
    with _as_owner(dsn) as (db, address):
        _refuse_others(db, address)
        found = versions(db)
        if found is None:
            raise StoreError(
                f"{address} has no schema {SCHEMA}: make it with `arcp-trio store init`"
            )
        if found[0] > VERSION:
            raise OtherVersion(
                f"schema {SCHEMA} in {address} has version {found[0]}, and this program knows"
                f" {VERSION}: use a later version of the program"
            )
        if found[0] == VERSION:
            return f"schema {SCHEMA} in {address} has version {found[0]} already"
        migrate(db, SCHEMA)
    return f"schema {SCHEMA} in {address} migrated from version {found[0]} to {VERSION}"


def nodes(dsn: str, *, gone: bool) -> Sequence[NodeListing]:
    """Return the nodes; with `gone`, also those that are over.

    Raises:
        StoreError: they cannot be read.
    """
    with _opened(dsn) as (db, address):
        check_schema(db, address)
        return [NodeListing(*row) for row in db.execute(_NODES, (gone,)).fetchall()]


def check_database(dsn: str) -> Sequence[Finding]:
    """Look at everything that nodes need of a database, as the role that they connect as.

    Raises:
        StoreError: it cannot be reached, or has no schema.
    """
    with _opened(dsn) as (db, address):
        check_schema(db, address)
        server, role = db.info.server_version, db.info.user
        checks: list[tuple[str, Callable[[Database, DatabaseAddress], None], str]] = [
            ("server", check_server, f"PostgreSQL {server // 10_000} at {address}"),
            ("writes", check_writable, "taken"),
            ("role", check_rights, f"{role} may do what a node does"),
        ]
        findings = [_outcome(about, check, db, address, good) for about, check, good in checks]
        return [*findings, _durability(db), _clock(db), _room(db)]


# -- what is looked at


def _outcome(
    about: str,
    check: Callable[[Database, DatabaseAddress], None],
    db: Database,
    address: DatabaseAddress,
    good: str,
) -> Finding:
    try:
        check(db, address)
    except StoreError as error:
        return Finding(about, str(error), good=False)
    return Finding(about, good)


def _durability(db: Database) -> Finding:
    synced, synchronous, standbys, connected = _one(db, _DURABILITY)
    if synchronous == "off":
        told = "synchronous_commit is off: a crash may lose what clients were told"
        return Finding("commits", told, good=False)
    if not synced:
        told = "not synced, as fsync is off: a loss of power may lose the database"
        return Finding("commits", told)
    if not connected:
        return Finding("commits", "synced; no standby is connected")
    if standbys:
        return Finding("commits", f"synced; {connected} standby, a failover loses nothing")
    told = "synced; the standby is asynchronous, a failover may forget the last moments"
    return Finding("commits", told)


def _clock(db: Database) -> Finding:
    offset = clock_offset(db)
    which = "behind" if offset.ahead < 0 else "ahead of"
    told = f"{abs(offset.ahead):.3f} s {which} this machine's"
    if not offset.wrong:
        return Finding("clock", told)
    return Finding("clock", f"{told}; nodes need it within 1 s: look at NTP", good=False)


def _room(db: Database) -> Finding:
    (left,) = _one(db, _ROOM)
    told = f"{left} left, enough for {left // CONNECTIONS_OF_A_NODE} more nodes"
    if left < CONNECTIONS_OF_A_NODE:
        return Finding("connections", f"{told}; raise max_connections", good=False)
    return Finding("connections", told)


# -- the database


@contextmanager
def _opened(dsn: str) -> Generator[tuple[Database, DatabaseAddress]]:
    address = address_of(dsn, SCHEMA)
    with store_errors(address):
        db: Database = psycopg.connect(address.conninfo, autocommit=True)
        with db:
            db.execute(sql.SQL("SET search_path = {}, pg_temp").format(sql.Identifier(SCHEMA)))
            yield db, address


@contextmanager
def _as_owner(dsn: str) -> Generator[tuple[Database, DatabaseAddress]]:
    """Begin a transaction that changes the schema, and say what a role lacks for that."""
    with _opened(dsn) as (db, address):
        try:
            with db.transaction():
                yield db, address
        except psycopg.errors.InsufficientPrivilege as error:
            said = error.diag.message_primary
            raise StoreError(
                f"{address}: role {db.info.user} may not do that: connect as one that may ({said})"
            ) from error


def _have_role(db: Database, address: DatabaseAddress, role: str) -> None:
    """Make a role unless it is there.

    Raises:
        StoreError: it is not there, and cannot be made.
    """
    if db.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is not None:
        return
    try:
        db.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreError(
            f"{address}: there is no role {role}, and role {db.info.user} may not make one:"
            " create it first"
        ) from error


def _refuse_others(db: Database, address: DatabaseAddress) -> None:
    """Refuse a role that does not own the schema, if there is one.

    It may not see the tables, and for what it grants the server only warns.
    """
    row = db.execute(
        "SELECT pg_get_userbyid(nspowner), pg_has_role(nspowner, 'USAGE')"
        " FROM pg_namespace WHERE nspname = %s",
        (SCHEMA,),
    ).fetchone()
    if row is not None and not row[1]:
        raise StoreError(f"schema {SCHEMA} in {address} is role {row[0]}'s: connect as that role")


def _one(db: Database, query: str) -> tuple[Any, ...]:
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return row


def _refuse_foreign(db: Database) -> None:
    """Refuse to make tables in a schema of something else."""
    foreign = db.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) LIMIT 1", (SCHEMA,)
    ).fetchone()
    if foreign is not None:
        raise ForeignFile(f"schema {SCHEMA} is not a store's: it has {foreign[0]}")
