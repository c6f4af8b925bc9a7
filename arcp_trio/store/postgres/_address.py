"""Where a database is: a DSN, as users give it, with encryption unless they say otherwise."""

from __future__ import annotations

import ipaddress
import os
import re
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from pathlib import Path
from typing import Final, TypeAlias

import attrs
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from arcp_trio.store.errors import StoreError

CONNECT_SECONDS: Final = 5
"""How long to wait for each host of a DSN."""

_Words: TypeAlias = dict[str, str | int | None]

# A peer that is gone without a word is noticed after some ten seconds.
_DEFAULTS: Final[_Words] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "target_session_attrs": "read-write",
}

_UNREADABLE: Final = (
    "the address of the database cannot be read: write it as postgresql://role@host:port/database,"
    " with %40 and %2F for @ and / in a password, and after ? only options of libpq"
)

_URL: Final = re.compile(r"postgres(ql)?://(?P<authority>[^/?]*)")

_SCHEMA_NAME: Final = re.compile("[a-z_][a-z0-9_]{0,39}")


@attrs.frozen(repr=False)
class DatabaseAddress:
    """A schema of a database; as a string it has no secret."""

    conninfo: str
    """What libpq needs to connect. It may have a password: it is never logged."""
    place: str
    """Host, port and database."""
    schema: str

    def __str__(self) -> str:
        return self.place

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.place!r})"


def address_of(dsn: str, schema: str) -> DatabaseAddress:
    """Return the address that a DSN stands for, a URL or words such as `host=db dbname=arcp`.

    A connection to another machine is encrypted, and the server's certificate checked, unless
    `sslmode` says otherwise.

    Raises:
        ValueError: the name cannot be that of a schema.
        StoreError: the DSN cannot be read.
    """
    if not _SCHEMA_NAME.fullmatch(schema):
        raise ValueError(
            f"schema must be 1 to 40 of a-z, 0-9 and _, and begin with no digit: {schema!r}"
        )
    given = _read(dsn)
    chosen = {**_DEFAULTS, **given}
    given = {**_of_service(given), **given}
    hosts = _hosts(given)
    if "sslmode" not in given and "PGSSLMODE" not in os.environ and any(map(_is_remote, hosts)):
        chosen["sslmode"] = "verify-full"
        if not _has_roots(given):
            chosen["sslrootcert"] = "system"
    return DatabaseAddress(make_conninfo("", **chosen), _place(given, hosts), schema)


def _read(dsn: str) -> _Words:
    # A bare @ or / of a password would end up in the host or the database, which are told.
    url = _URL.match(dsn)
    if url is not None and ("@" in dsn[url.end() :] or url["authority"].count("@") > 1):
        raise StoreError(_UNREADABLE)
    try:
        return conninfo_to_dict(dsn)
    except ProgrammingError:  # its message would repeat the DSN, with the password
        raise StoreError(_UNREADABLE) from None


def _of_service(given: _Words) -> _Words:
    """Return what a service file says of the service that a DSN names; libpq reads it again."""
    name = given.get("service") or os.environ.get("PGSERVICE")
    if name is None:
        return {}
    file = Path(os.environ.get("PGSERVICEFILE") or "~/.pg_service.conf").expanduser()
    services = ConfigParser(interpolation=None)
    try:
        services.read(file, encoding="utf-8")
        return dict(services[str(name)])
    except (KeyError, ConfigParserError, UnicodeDecodeError):
        return {"host": f"service {name}"}  # the system's file has it, which may say any host


def _hosts(given: _Words) -> list[str]:
    """Return the hosts of a DSN; an empty one is the Unix socket of this machine."""
    named = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST") or ""
    return str(named).split(",")


def _is_remote(host: str) -> bool:
    if not host or host[0] in "/@" or host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def _has_roots(given: _Words) -> bool:
    """Return whether it is said whose certificates are trusted; else it is the system's list."""
    if "sslrootcert" in given or "PGSSLROOTCERT" in os.environ:
        return True
    try:
        return Path("~/.postgresql/root.crt").expanduser().exists()
    except (OSError, RuntimeError):  # the home is hidden, as from a service, or unknown
        return False


def _place(given: _Words, hosts: list[str]) -> str:
    ports = str(given.get("port") or os.environ.get("PGPORT") or 5432).split(",")
    if len(ports) < len(hosts):
        ports = ports[:1] * len(hosts)
    where = ",".join(
        f"{host or 'localhost'}:{port}" for host, port in zip(hosts, ports, strict=False)
    )
    name = given.get("dbname") or os.environ.get("PGDATABASE") or given.get("user") or ""
    return f"{where}/{name}"
