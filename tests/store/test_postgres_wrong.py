"""Every way in which a database can be wrong has a clear word."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Generator
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import trio

from arcp_trio import PostgresStore
from arcp_trio.store.errors import ForeignFile, OtherVersion, StoreError, UnwritableStore
from arcp_trio.store.interface import Store
from arcp_trio.store.postgres import _checks, _schema
from arcp_trio.store.postgres._errors import words_of
from tests.postgres_server import own_server
from tests.store.engines import Feeder, running
from tests.store.samples import BASE, WRITES

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS: Final = 60.0
"""Everything here ends long before."""


async def refusal(store: Store) -> str:
    """Return why a store cannot be opened."""
    with trio.fail_after(SECONDS), pytest.raises(StoreError) as raised:
        await store.run()
    assert type(raised.value) in (StoreError, ForeignFile, OtherVersion, UnwritableStore)
    return str(raised.value)


def execute(url: str, *statements: str) -> None:
    """Execute statements as the owner."""
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            db.execute(statement.encode())


def as_role(url: str, role: str) -> str:
    """Return the URL for a role."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.partition('@')[2]}"))


@pytest.fixture
def role(url: str) -> Generator[str]:
    """A role of this test's own, as all databases of a server share them."""
    name = f"node_{uuid.uuid4().hex}"
    execute(url, f"CREATE ROLE {name} LOGIN")
    yield name
    execute(url, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@pytest.fixture
def node_url(url: str, role: str) -> str:
    """The same, as the role of nodes sees it."""
    with psycopg.connect(url, autocommit=True) as db:
        _schema.grant(db, "arcp", role)
    return as_role(url, role)


# -- what is not there


async def test_no_server() -> None:
    """A server that does not listen is named, by host, port and database."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told = await refusal(PostgresStore(f"postgresql://arcp:s3cret@127.0.0.1:{port}/arcp"))
    assert told.startswith(f"127.0.0.1:{port}/arcp: the server cannot be reached")
    assert "s3cret" not in told


async def test_no_database(url: str) -> None:
    """A database that does not exist is to be created first."""
    told = await refusal(PostgresStore(urlunsplit(urlsplit(url)._replace(path="/nowhere"))))
    assert "there is no such database; create it" in told


async def test_no_schema(database: str) -> None:
    """An empty database is to be prepared first."""
    assert "make it with `arcp-trio store init`" in await refusal(PostgresStore(database))


async def test_no_role(url: str) -> None:
    """A role that the server does not know is not let in."""
    assert "the role may not connect" in await refusal(PostgresStore(as_role(url, "stranger")))


async def test_a_database_that_the_role_may_not_connect_to(database: str, role: str) -> None:
    """A database that is there, and closed to the role, is not called missing."""
    name = urlsplit(database).path[1:]
    execute(database, f'REVOKE CONNECT ON DATABASE "{name}" FROM public')
    told = await refusal(PostgresStore(as_role(database, role)))
    assert "the role may not connect to this database; let it by GRANT CONNECT" in told


def test_a_role_or_its_password_is_wrong() -> None:
    """A server says the same of a role that it does not know and of a wrong password."""
    said = 'FATAL: password authentication failed for user "arcp"'
    told = words_of(psycopg.OperationalError(said))
    assert told == f"the password is wrong, or there is no such role ({said})"


# -- what is something else


async def test_a_schema_of_something_else(database: str) -> None:
    """A schema that another program has made is left alone."""
    execute(database, "CREATE SCHEMA arcp", "CREATE TABLE arcp.schema (number int)")
    told = await refusal(PostgresStore(database))
    assert "the schema arcp is not a store of this program" in told
    with psycopg.connect(database) as db:
        names = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'arcp'").fetchall()
    assert names == [("schema",)]


@pytest.mark.parametrize(
    ("version", "oldest_writer", "told"),
    [
        (0, 0, "run `arcp-trio store migrate`"),
        (99, 99, "use a later version of the program"),
    ],
)
async def test_a_store_of_another_version(
    database: str, version: int, oldest_writer: int, told: str
) -> None:
    """An older store is to be migrated, and a newer one needs a newer program."""
    with psycopg.connect(database) as db:
        _schema.migrate(db, "arcp")
    change = f"UPDATE arcp.schema SET version = {version}, oldest_writer = {oldest_writer}"
    execute(database, change)
    assert told in await refusal(PostgresStore(database))


async def test_a_newer_store_that_this_program_may_write(database: str) -> None:
    """A schema that was only added to can be used until the last node is a new one."""
    with psycopg.connect(database) as db:
        _schema.migrate(db, "arcp")
    execute(database, "UPDATE arcp.schema SET version = 99")
    with trio.fail_after(SECONDS):
        async with running(PostgresStore(database, synchronous=False)) as store:
            await Feeder(store).session().committed()


async def test_a_server_that_is_too_old(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest version that will do is named."""
    monkeypatch.setattr(_checks, "OLDEST_SERVER", 990_000)
    assert "is too old, 99 or later is needed" in await refusal(PostgresStore(url))


async def test_text_that_is_not_utf_8(database: str) -> None:
    """A database that cannot keep all text is refused."""
    name = f"{urlsplit(database).path[1:]}_ascii"
    execute(
        database,
        f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'",
    )
    try:
        told = await refusal(
            PostgresStore(urlunsplit(urlsplit(database)._replace(path=f"/{name}")))
        )
        assert "keeps text as SQL_ASCII; create one with ENCODING 'UTF8'" in told
    finally:
        execute(database, f"DROP DATABASE {name} WITH (FORCE)")


# -- what cannot be written


async def test_a_database_that_is_read_only(url: str) -> None:
    """A database whose transactions are read-only by default takes no store."""
    name = urlsplit(url).path[1:]
    execute(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        assert "read-only" in await refusal(PostgresStore(url))
    finally:
        reset = f"ALTER DATABASE {name} RESET default_transaction_read_only"
        execute(url, "SET default_transaction_read_only = off", reset)


async def test_a_role_without_rights(url: str, role: str) -> None:
    """A role that the schema is closed to is told what its owner does."""
    told = await refusal(PostgresStore(as_role(url, role)))
    assert f"run `arcp-trio store init --role {role}`" in told


async def test_a_role_that_may_only_read(url: str, role: str, node_url: str) -> None:
    """Tables that the role cannot write are named before anything is stored."""
    execute(url, f"REVOKE INSERT ON arcp.log, arcp.job FROM {role}")
    assert "may not read and write job, log;" in await refusal(PostgresStore(node_url))


async def test_a_role_needs_no_more_than_rows(url: str, role: str, node_url: str) -> None:
    """The role that `store init` makes can do all that a node does, and not change the schema."""
    with trio.fail_after(SECONDS):
        async with running(PostgresStore(node_url, synchronous=False)) as store:
            for write in (*BASE, *WRITES):
                await store.put(write).committed()
            assert store.trouble is None
    with psycopg.connect(node_url, autocommit=True) as db:
        for statement in ("CREATE TABLE arcp.own ()", "UPDATE arcp.schema SET version = 2"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute(statement.encode())


async def test_a_role_may_use_tables_of_later_versions(url: str, node_url: str) -> None:
    """What a migration adds needs no other word of the owner."""
    execute(url, "CREATE TABLE arcp.later (n int)")
    try:
        execute(node_url, "INSERT INTO arcp.later VALUES (1)", "DELETE FROM arcp.later")
    finally:
        execute(url, "DROP TABLE arcp.later")


# -- what goes wrong later


async def troubled_by(store: Store, *, session: str) -> str:
    """Put a write, and return what the store says of its trouble."""
    Feeder(store).session(session, token=session.encode())
    await store.troubled()
    assert store.trouble is not None
    return store.trouble


@pytest.mark.logs_error("store in trouble")
async def test_privileges_are_lost(url: str, role: str, node_url: str) -> None:
    """A node that may no longer write says so, and goes on once it may."""
    with trio.fail_after(SECONDS):
        async with running(PostgresStore(node_url, synchronous=False)) as store:
            await Feeder(store).session().committed()
            execute(url, f"REVOKE INSERT ON arcp.session FROM {role}")
            assert "the role has lost privileges" in await troubled_by(store, session="S2")
            execute(url, f"GRANT INSERT ON arcp.session TO {role}")
            await store.flushed()
            assert await store.session("S2") is not None


@pytest.mark.logs_error("store in trouble")
async def test_the_schema_is_gone(database: str) -> None:
    """A schema that somebody has dropped is missed, by every write."""
    with psycopg.connect(database) as db:
        _schema.migrate(db, "arcp")
    with trio.fail_after(SECONDS):
        async with running(PostgresStore(database, synchronous=False)) as store:
            await Feeder(store).session().committed()
            execute(database, "ALTER SCHEMA arcp RENAME TO elsewhere")
            assert "are gone" in await troubled_by(store, session="S2")
            execute(database, "ALTER SCHEMA elsewhere RENAME TO arcp")
            await store.flushed()


@pytest.mark.logs_error("store in trouble")
async def test_no_connection_is_left(url: str, role: str, node_url: str) -> None:
    """A node that cannot connect again, because others have all connections, waits for one."""
    with trio.fail_after(SECONDS):
        async with running(PostgresStore(node_url, synchronous=False)) as store:
            await Feeder(store).session().committed()
            execute(
                url,
                f"ALTER ROLE {role} CONNECTION LIMIT 0",
                f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                f" WHERE usename = '{role}'",
            )
            told = ""
            Feeder(store).session("S2", token=b"other")
            while "no connection left" not in told:
                await store.troubled()
                told = store.trouble or ""
                await trio.sleep(0.01)
            execute(url, f"ALTER ROLE {role} CONNECTION LIMIT -1")
            await store.flushed()


async def test_a_node_needs_all_its_connections(url: str, role: str, node_url: str) -> None:
    """A node that would have no connection for its signs of life does not join."""
    execute(url, f"ALTER ROLE {role} CONNECTION LIMIT 5")
    assert "no connection left" in await refusal(PostgresStore(node_url, synchronous=False))
    with psycopg.connect(url) as db:
        assert db.execute("SELECT count(*) FROM arcp.node").fetchone() == (0,)


async def test_an_administrator_ends_the_connections(url: str, role: str, node_url: str) -> None:
    """Connections that are ended are made again; the write that met it is stored at once."""
    with trio.fail_after(SECONDS):
        async with running(PostgresStore(node_url, synchronous=False)) as store:
            await Feeder(store).session().committed()
            execute(
                url,
                f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                f" WHERE usename = '{role}'",
            )
            Feeder(store).session("S2", token=b"other")
            await store.flushed()
            assert store.trouble is None
            assert await store.session("S2") is not None


async def test_a_standby_takes_no_node() -> None:
    """A server that only follows another one is refused, before anything is looked at."""
    with own_server() as primary:
        primary.start()
        with own_server(copy_of=primary) as standby:
            standby.start()
            assert "connect to the primary server" in await refusal(PostgresStore(standby.url()))
