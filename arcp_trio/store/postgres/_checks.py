"""Checks that a database is a store which this node may write."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Final

import attrs

from arcp_trio.store.errors import ForeignFile, OtherVersion, StoreError, UnwritableStore
from arcp_trio.store.postgres._address import DatabaseAddress
from arcp_trio.store.postgres._errors import POOLED
from arcp_trio.store.postgres._schema import MIGRATIONS, OLDEST_SERVER, Database, versions

log = logging.getLogger(__name__)

VERSION: Final = len(MIGRATIONS)
"""The version of the schema that this program writes."""

CLOCK_SECONDS: Final = 1.0
"""How far the clock of a node may be off."""

_RIGHTS: Final = "SELECT, INSERT, UPDATE, DELETE"


def check_server(db: Database, address: DatabaseAddress) -> None:
    """Check what has nothing to do with the schema.

    Raises:
        OtherVersion: the server is too old.
        StoreError: the database is of no use.
    """
    found = db.info.server_version
    if found < OLDEST_SERVER:
        raise OtherVersion(
            f"{address}: PostgreSQL {found // 10_000} is too old,"
            f" {OLDEST_SERVER // 10_000} or later is needed"
        )
    encoding = db.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"{address}: the database keeps text as {encoding}; create one with ENCODING 'UTF8'"
        )


def check_writable(db: Database, address: DatabaseAddress) -> None:
    """Check that the database takes writes.

    Raises:
        UnwritableStore: the server is a standby, or the database is read-only.
    """
    row = db.execute(
        "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::boolean"
    ).fetchone()
    if row is not None and any(row):
        why = "the server is a standby" if row[0] else "transactions are read-only by default"
        raise UnwritableStore(f"{address}: {why}; connect to a primary server that takes writes")


@attrs.frozen
class ClockOffset:
    """How far the server's clock seems to be ahead of this machine's, in seconds."""

    ahead: float
    margin: float
    """By how much that may be wrong: by half of the time that the answer took."""

    @property
    def wrong(self) -> bool:
        """Whether one of the clocks is off for sure."""
        return abs(self.ahead) - self.margin > CLOCK_SECONDS


def check_clock(db: Database, address: DatabaseAddress) -> None:
    """Check that this machine and the server agree on the time of day.

    Raises:
        StoreError: they do not.
    """
    offset = clock_offset(db)
    if offset.wrong:
        which = "behind" if offset.ahead > 0 else "ahead of"
        raise StoreError(
            f"{address}: the clock of this machine is {abs(offset.ahead):.1f} s {which} that of the"
            " database; set both by NTP"
        )


def clock_offset(db: Database) -> ClockOffset:
    """Compare the server's clock with this machine's."""
    at, began = time.time(), time.monotonic()
    row = db.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert row is not None
    half = (time.monotonic() - began) / 2
    return ClockOffset(row[0] - at - half, half)


def check_schema(db: Database, address: DatabaseAddress) -> None:
    """Check that the schema is a store of a version that this program may write.

    Raises:
        StoreError: the schema is missing, or is closed to this role.
        ForeignFile: the schema is something else.
        OtherVersion: another version of this program has made it.
    """
    schema = address.schema
    row = db.execute(
        "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %s", (schema,)
    ).fetchone()
    if row is None:
        raise StoreError(f"{address} has no schema {schema}: make it with `arcp-trio store init`")
    if not row[0]:
        raise StoreError(
            f"{address}: the role {db.info.user} may not use the schema {schema};"
            f" as its owner, run `arcp-trio store init --role {db.info.user}`"
        )
    found = versions(db)
    if found is None:
        raise ForeignFile(
            f"{address}: the schema {schema} is not a store of this program;"
            " choose another name for the schema"
        )
    version, oldest_writer = found
    if version < VERSION:
        raise OtherVersion(
            f"{address}: the store is of version {version}, and this program writes {VERSION};"
            " as its owner, run `arcp-trio store migrate`"
        )
    if oldest_writer > VERSION:
        raise OtherVersion(
            f"{address}: the store is of version {version}, which this program does not know"
            f" (it writes {VERSION}); use a later version of the program"
        )


def check_rights(db: Database, address: DatabaseAddress) -> None:
    """Check that the role may do with the tables what a node does.

    Raises:
        StoreError: it may not.
    """
    lacking = db.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'"
        " AND relname <> 'schema' AND NOT"
        " (SELECT bool_and(has_table_privilege(pg_class.oid, needed))"
        " FROM unnest(string_to_array(%s, ', ')) AS needed) ORDER BY relname",
        (address.schema, _RIGHTS),
    ).fetchall()
    if lacking:
        names = ", ".join(name for (name,) in lacking)
        raise StoreError(
            f"{address}: the role {db.info.user} may not read and write {names};"
            f" as the owner, run `arcp-trio store init --role {db.info.user}`"
        )


def check_pooling(processes: Collection[int], address: DatabaseAddress) -> None:
    """Check that open connections are processes of the server of their own, given their numbers.

    Raises:
        StoreError: a pooler gives one connection of the server to several clients.
    """
    if len(set(processes)) < len(processes):
        raise StoreError(f"{address}: {POOLED}")


def warn_of_losses(db: Database, address: DatabaseAddress) -> None:
    """Log what the settings of the server mean for what is promised."""
    row = db.execute(
        "SELECT current_setting('fsync')::boolean, current_setting('synchronous_standby_names'),"
        " (SELECT count(*) FROM pg_stat_replication)"
    ).fetchone()
    if row is None:
        return
    synced, synchronous, standbys = row
    facts = {"database": str(address)}
    if not synced:
        log.warning("the database does not sync: a loss of power loses it", extra=facts)
    if standbys and not synchronous:
        log.warning(
            "the database has no synchronous standby: a failover may lose the last moments",
            extra=facts,
        )
