"""`store init`, `check` and `migrate`, and `nodes`, at a real PostgreSQL."""

from __future__ import annotations

import json
import uuid
from collections.abc import Generator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from arcp_trio.store.postgres._checks import VERSION
from tests.cli.processes import Starter
from tests.postgres_server import own_server

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]


@pytest.fixture
def role(database: str) -> Generator[str]:
    """The name of a role that does not exist yet, and not after the test."""
    name = f"node_{uuid.uuid4().hex}"
    yield name
    with psycopg.connect(database) as db:
        if db.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,)).fetchone():
            db.execute(f"DROP OWNED BY {name}")
            db.execute(f"DROP ROLE {name}")


def as_role(database: str, role: str) -> str:
    """Return the database's URL for a role."""
    parts = urlsplit(database)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{role}@{host}"))


def done(start: Starter, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run a command to its end."""
    return start(*arguments, environment=environment).end()


def test_a_schema_is_made_and_found_good(start: Starter, database: str, role: str) -> None:
    """After `init`, `check` finds nothing wrong for the role of the nodes, which has no more."""
    code, out, err = done(start, "store", "init", "--store", database, "--role", role)
    assert (code, err) == (0, "")
    assert "schema arcp made" in out
    assert f"role {role} may use it" in out
    code, out, err = done(start, "store", "check", ARCP_STORE=as_role(database, role))
    assert (code, err) == (0, ""), out
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["ok", about] for about in ("server", "writes", "role", "commits", "clock", "connections")
    ]
    assert done(start, "store", "init", "--store", database) == (
        0,
        f"schema arcp is in {place(database)} already, version {VERSION}\n",
        "",
    )
    with psycopg.connect(as_role(database, role), autocommit=True) as node:
        for forbidden in ("CREATE TABLE arcp.more ()", "UPDATE arcp.schema SET version = 9"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                node.execute(forbidden)


def place(database: str) -> str:
    """Return how messages name a database: without user and password."""
    with psycopg.connect(database) as db:
        return f"{db.info.host}:{db.info.port}/{db.info.dbname}"


def test_what_is_wrong_is_said(start: Starter, database: str, role: str) -> None:
    """A role without privileges, and commits that are not synced, are found."""
    assert done(start, "store", "init", "--store", database, "--role", role)[0] == 0
    with psycopg.connect(database) as db:
        db.execute(f"REVOKE INSERT ON arcp.job FROM {role}")
        db.execute(f"ALTER ROLE {role} SET synchronous_commit = off")
    code, out, err = done(start, "store", "check", "--store", as_role(database, role))
    assert (code, err) == (1, "")
    wrong = [line for line in out.splitlines() if line.startswith("WRONG")]
    assert [line.split()[1] for line in wrong] == ["role", "commits"]
    assert f"the role {role} may not read and write job; " in wrong[0]
    assert f"run `arcp-trio store init --role {role}`" in wrong[0]


def test_a_server_that_does_not_sync_is_said(start: Starter) -> None:
    """`check` says what a node warns of: a server with `fsync = off` may lose what it has."""
    with own_server() as server:
        server.start(fsync="off")
        assert done(start, "store", "init", "--store", server.url())[0] == 0
        code, out, _ = done(start, "store", "check", "--store", server.url())
    assert code == 0
    assert "commits      not synced, as fsync is off: a loss of power may lose" in out


def test_only_the_owner_makes_and_opens_the_schema(
    start: Starter, database: str, role: str
) -> None:
    """A role that may not is told so, and whose the schema is; nothing is claimed to be done."""
    with psycopg.connect(database) as db:
        db.execute(f"CREATE ROLE {role} LOGIN")
    code, out, err = done(start, "store", "init", "--store", as_role(database, role))
    assert (code, out) == (1, "")
    assert f"role {role} may not do that: connect as one that may" in err
    assert done(start, "store", "init", "--store", database, "--role", role)[0] == 0
    with psycopg.connect(database) as db:
        owner = db.info.user
    told = f"arcp-trio: schema arcp in {place(database)} is role {owner}'s: connect as that role\n"
    for words in (("init", "--role", "pg_monitor"), ("migrate",)):
        other = as_role(database, role)
        assert done(start, "store", *words, "--store", other) == (1, "", told)


def test_a_role_that_is_not_there(start: Starter, database: str, role: str) -> None:
    """Who may not make roles is told which one there is not; nothing is made."""
    with psycopg.connect(database) as db:
        db.execute(f"CREATE ROLE {role} LOGIN")
        db.execute(f'GRANT CREATE ON DATABASE "{db.info.dbname}" TO {role}')
    owner = as_role(database, role)
    code, out, err = done(start, "store", "init", "--store", owner, "--role", "mistyped")
    assert (code, out) == (1, "")
    assert f": there is no role mistyped, and role {role} may not make one: create it first" in err
    assert "has no schema" in done(start, "store", "check", "--store", owner)[2]


def test_a_database_without_a_store(start: Starter, database: str) -> None:
    """Without a schema, `check`, `migrate` and `nodes` name the command that makes it."""
    for words in (("store", "check"), ("store", "migrate"), ("nodes",)):
        code, out, err = done(start, *words, "--store", database)
        assert (code, out) == (1, "")
        advice = "has no schema arcp: make it with `arcp-trio store init`"
        assert err == f"arcp-trio: {place(database)} {advice}\n"


def test_a_schema_of_something_else(start: Starter, database: str) -> None:
    """`init` adds nothing to a schema in which something else has tables."""
    with psycopg.connect(database) as db:
        db.execute("CREATE SCHEMA arcp CREATE TABLE precious ()")
    code, out, err = done(start, "store", "init", "--store", database)
    assert (code, out) == (1, "")
    assert err == "arcp-trio: schema arcp is not a store's: it has precious\n"


def test_a_schema_of_a_newer_version(start: Starter, database: str) -> None:
    """A newer schema is neither migrated nor found good."""
    assert done(start, "store", "init", "--store", database)[0] == 0
    already = done(start, "store", "migrate", "--store", database)[1]
    assert f"has version {VERSION} already" in already
    with psycopg.connect(database) as db:
        db.execute("UPDATE arcp.schema SET version = 99, oldest_writer = 99")
    code, _, err = done(start, "store", "migrate", "--store", database)
    assert code == 1
    assert "has version 99" in err
    code, _, err = done(start, "store", "check", "--store", database)
    assert code == 1
    assert "of version 99" in err


def test_nodes_are_listed(start: Starter, database: str) -> None:
    """Nodes are listed by name, with what they have; those that are gone only with --all.

    A node that was killed is `up` until another one adopts it: its last beat is told.
    """
    assert done(start, "store", "init", "--store", database)[0] == 0
    assert done(start, "nodes", "--store", database) == (0, "", "there are no nodes\n")
    assert done(start, "nodes", "--store", database, "--json") == (0, "", "")
    with psycopg.connect(database) as db:
        db.execute(
            "INSERT INTO arcp.node (name, state, version) VALUES"
            " ('b', 'draining', '1'), ('a', 'up', '2'), ('a', 'gone', '1')"
        )
        db.execute(
            "INSERT INTO arcp.beat (node, beat_at)"
            " SELECT node, now() - interval '100 days' FROM arcp.node WHERE state <> 'gone'"
        )
        db.execute("UPDATE arcp.beat SET beats = 1 WHERE node = 1")
    code, out, _ = done(start, "nodes", "--store", database)
    heading, *rows = (line.split() for line in out.splitlines())
    assert code == 0
    assert heading[:6] == ["NAME", "NODE", "STATE", "LAST", "BEAT", "VERSION"]
    assert [(row[0], row[2], row[4:7]) for row in rows] == [
        ("a", "up", ["s", "ago", "2"]),
        ("b", "draining", ["s", "ago", "1"]),
    ]
    shown = done(start, "nodes", "--all", "--json", ARCP_STORE=database)[1].splitlines()
    nodes = [json.loads(line) for line in shown]
    assert [(node["name"], node["state"]) for node in nodes] == [
        *(("a", "up"), ("a", "gone"), ("b", "draining"))
    ]
    assert all((node["sessions"], node["jobs"]) == (0, 0) for node in nodes)
    up, gone, draining = (node["beat_seconds"] for node in nodes)
    assert up > 99 * 86_400, "it has not beaten since"
    assert 0 <= draining < 3_600, "it has beaten just now"
    assert gone is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("store", "init"), "no database: give --store URL, or set ARCP_STORE"),
        (("nodes",), "no database: give --store URL, or set ARCP_STORE"),
        (("store", "drop"), "drop is not an action: init, check, migrate"),
        (("store", "check", "--role", "x"), "--role belongs to init"),
    ],
)
def test_what_cannot_be_asked(start: Starter, arguments: tuple[str, ...], said: str) -> None:
    """A wrong use is one line, with exit code 2."""
    assert done(start, *arguments) == (2, "", f"arcp-trio: {said}\n")


def test_a_database_that_is_not_there(start: Starter) -> None:
    """What cannot be reached is named without the password, which is not to be given so."""
    url = "postgresql://arcp:s3cret@127.0.0.1:1/arcp"
    code, out, err = done(start, "store", "check", "--store", url)
    assert (code, out) == (1, "")
    warning, line = err.splitlines()
    assert warning == (
        "arcp-trio: the list of processes shows the password: give the address in ARCP_STORE"
    )
    assert line.startswith("arcp-trio: 127.0.0.1:1/arcp: the server cannot be reached")
    assert "s3cret" not in err


@pytest.mark.parametrize("command", [("store", "check"), ("serve",)])
def test_a_password_with_brackets(start: Starter, command: tuple[str, ...]) -> None:
    """A password that libpq takes as it is, and that is not one for Python's URLs, is not told."""
    url = "postgresql://arcp:a[s3cret]b@127.0.0.1:1/arcp"
    code, _, err = done(start, *command, "--store", url, ARCP_TOKENS="alice=the-token-of-alice")
    assert code == 1
    assert "127.0.0.1:1/arcp: the server cannot be reached" in err
    assert "s3cret" not in err
