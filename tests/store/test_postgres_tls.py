"""TLS to the database: what is not said is verified, and what cannot be verified is not trusted."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
import trio
import trustme

from arcp_trio import PostgresStore
from arcp_trio.store.errors import StoreError
from arcp_trio.store.postgres import _schema
from tests.postgres_server import ROLE, PostgresServer, own_server
from tests.store.engines import Feeder, running

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

NAME: Final = "db.example"
"""The server's name, which is that of another machine."""
SECONDS: Final = 60.0
"""Everything here ends long before."""


@contextmanager
def server(authority: trustme.CA | None) -> Generator[str]:
    """Run a server, with a certificate for its name or without TLS; provide its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with own_server() as found:
        settings = {"listen_addresses": "127.0.0.1", "port": str(port)}
        if authority is not None:
            certify(found, authority)
            settings["ssl"] = "on"
        found.start(**settings)
        where = f"host={NAME} hostaddr=127.0.0.1 port={port} user={ROLE} dbname=postgres"
        with psycopg.connect(f"{where} sslmode=prefer") as db:
            _schema.migrate(db, "arcp")
        yield where


def certify(server: PostgresServer, authority: trustme.CA) -> None:
    """Give a server a certificate for its name, as the server's own files."""
    issued, owner = authority.issue_cert(NAME), server.data.stat()
    key = server.data / "server.key"
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(server.data / "server.crt")
    key.chmod(0o600)
    for file in (key, server.data / "server.crt"):
        os.chown(file, owner.st_uid, owner.st_gid)


async def refusal(dsn: str) -> str:
    """Return why a store cannot be opened."""
    store = PostgresStore(dsn, synchronous=False)
    with trio.fail_after(SECONDS), pytest.raises(StoreError) as raised:
        await store.run()
    return str(raised.value)


async def test_a_certificate_is_checked(tmp_path: Path) -> None:
    """Only a server whose certificate is trusted, and is for its name, is spoken to."""
    authority, roots, others = trustme.CA(), tmp_path / "roots", tmp_path / "others"
    authority.cert_pem.write_to_path(roots)
    trustme.CA().cert_pem.write_to_path(others)
    with server(authority) as where:
        with trio.fail_after(SECONDS):
            async with running(PostgresStore(f"{where} sslrootcert={roots}")) as store:
                await Feeder(store).session().committed()
                assert await store.session("S") is not None
        assert "the server's certificate is not trusted" in await refusal(where)
        assert "not trusted" in await refusal(f"{where} sslrootcert={others}")
        another = where.replace(NAME, "another.example")
        assert "not trusted" in await refusal(f"{another} sslrootcert={roots}")


async def test_a_home_that_cannot_be_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What libpq does not find out about a home is not taken for a fault of the server."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "roots")
    monkeypatch.setenv("HOME", "/" + "x" * 300)
    with server(authority) as where:
        said = await refusal(f"{where} sslrootcert={tmp_path / 'roots'}")
    assert "set HOME to one that it can read" in said
    assert "not trusted" not in said


async def test_a_server_that_does_not_encrypt() -> None:
    """Nothing is told to another machine in the clear, unless the address says that it may be."""
    with server(None) as where:
        assert "say sslmode=disable" in await refusal(where)
        with trio.fail_after(SECONDS):
            async with running(PostgresStore(f"{where} sslmode=disable")) as store:
                await Feeder(store).session().committed()
