"""The address of a database: encrypted unless told otherwise, and its secret told to nobody."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from arcp_trio import PostgresStore
from arcp_trio.store.errors import StoreError
from arcp_trio.store.postgres._address import DatabaseAddress, address_of


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE", "PGSERVICE", "PGSSLMODE", "PGSSLROOTCERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def options(dsn: str) -> dict[str, object]:
    """Return what is told to libpq."""
    return dict(conninfo_to_dict(address_of(dsn, "arcp").conninfo))


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://arcp@db.example/arcp",
        "postgresql://arcp@192.0.2.7:5433/arcp",
        "host=db1,db2 dbname=arcp",
        "host=localhost,db2 dbname=arcp",
        "hostaddr=192.0.2.7 dbname=arcp",
    ],
)
def test_a_connection_to_another_machine_is_verified(dsn: str) -> None:
    """Without a word about it, the server has to show a certificate of its name."""
    found = options(dsn)
    assert (found["sslmode"], found["sslrootcert"]) == ("verify-full", "system")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql:///arcp",
        "postgresql://arcp@localhost/arcp",
        "postgresql://arcp@127.0.0.1:5433/arcp",
        "postgresql://arcp@[::1]/arcp",
        "host=/run/postgresql dbname=arcp",
    ],
)
def test_a_connection_within_this_machine_is_as_libpq_makes_it(dsn: str) -> None:
    """Nothing is said about encryption where nobody else can listen."""
    assert "sslmode" not in options(dsn)


def test_a_weaker_mode_has_to_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address or the environment may say that less is enough."""
    assert options("postgresql://db/arcp?sslmode=require")["sslmode"] == "require"
    monkeypatch.setenv("PGSSLMODE", "prefer")
    assert "sslmode" not in options("postgresql://db/arcp")


def test_certificates_of_ones_own_are_trusted(tmp_path: Path) -> None:
    """Where it is said whose certificates count, the system's list is left alone."""
    assert options("postgresql://db/arcp?sslrootcert=/etc/own.crt")["sslrootcert"] == "/etc/own.crt"
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").touch()
    assert "sslrootcert" not in options("postgresql://db/arcp")


def test_a_home_that_cannot_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a home that can be read, as in a service that sees none, the system's list counts."""
    monkeypatch.setenv("HOME", "/" + "x" * 300)
    assert options("postgresql://db/arcp")["sslrootcert"] == "system"


def test_the_environment_names_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that comes from the environment is another machine, too."""
    monkeypatch.setenv("PGHOST", "db.example")
    assert options("dbname=arcp")["sslmode"] == "verify-full"
    assert str(address_of("dbname=arcp", "arcp")) == "db.example:5432/arcp"


def test_a_service_file_names_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host of a service file is another machine, too, and its file may ask for less."""
    file = tmp_path / "services"
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    file.write_text("[far]\nhost=db.example\ndbname=arcp\n[weak]\nhost=db\nsslmode=require\n")
    assert options("service=far")["sslmode"] == "verify-full"
    assert str(address_of("service=far", "arcp")) == "db.example:5432/arcp"
    assert "sslmode" not in options("service=weak")
    assert options("service=elsewhere")["sslmode"] == "verify-full"
    monkeypatch.setenv("PGSERVICE", "far")
    assert options("dbname=arcp")["sslmode"] == "verify-full"


def test_a_peer_that_is_gone_is_noticed() -> None:
    """A peer that says nothing is given up, unless told otherwise; a standby will not do."""
    found = options("postgresql://db/arcp?connect_timeout=30")
    assert found["connect_timeout"] == "30"
    assert found["target_session_attrs"] == "read-write"
    assert found["tcp_user_timeout"] == "10000"
    assert found["keepalives_idle"] == "5"


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        ("postgresql://arcp:s3cret@db:5433/arcp", "db:5433/arcp"),
        ("postgresql://arcp:s3cret@db/arcp", "db:5432/arcp"),
        ("host=a,b port=1,2 dbname=arcp password=s3cret", "a:1,b:2/arcp"),
        ("host=a,b dbname=arcp password=s3cret", "a:5432,b:5432/arcp"),
        ("postgresql:///arcp?password=s3cret", "localhost:5432/arcp"),
        ("host=db password='x://a@b/c@d' user=u dbname=arcp", "db:5432/arcp"),
    ],
)
def test_an_address_is_shown_without_its_secret(dsn: str, place: str) -> None:
    """Host, port and database are all that is ever told."""
    address: DatabaseAddress = address_of(dsn, "arcp")
    assert str(address) == place
    assert "s3cret" not in repr(address) + repr(PostgresStore(dsn)) + repr(vars(PostgresStore(dsn)))


def test_an_address_that_cannot_be_read_is_not_repeated() -> None:
    """The error says how an address is written, and not what was given."""
    with pytest.raises(StoreError, match=r"postgresql://role@host") as raised:
        address_of("postgres//arcp:s3cret@db", "arcp")
    assert "s3cret" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://arcp:s3cr@et@db/arcp",
        "postgresql://arcp:s3cr/et@db/arcp",
        "postgresql://arcp:s3cr%et@db/arcp",
        "postgresql://arcp:99/s3cr?dbname=et@db/arcp",
        "postgresql://db/arcp?sslmod=require",
    ],
)
def test_what_an_address_cannot_have_is_said(dsn: str) -> None:
    """A password that ends the address early is told to nobody, and how to write it is said."""
    with pytest.raises(StoreError, match="%40 and %2F for @ and / in a password") as raised:
        address_of(dsn, "arcp")
    assert not re.search("s3cr|et@", str(raised.value))


def test_a_password_may_have_any_character() -> None:
    """A password whose characters are escaped is read as it is."""
    found = options("postgresql://arcp:s3cr%40%2Fet%25@db/arcp")
    assert (found["host"], found["password"]) == ("db", "s3cr@/et%")


@pytest.mark.parametrize("schema", ["", "Arcp", "1st", "a b", 'x"; DROP', "s" * 41])
def test_a_schema_has_a_plain_name(schema: str) -> None:
    """A name that would have to be quoted is refused."""
    with pytest.raises(ValueError, match="schema must be"):
        address_of("postgresql:///arcp", schema)
