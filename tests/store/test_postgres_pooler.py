"""A pooler between a node and its database: only a connection of one's own will do."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest
import trio

from arcp_trio import PostgresStore
from arcp_trio.store.errors import StoreError
from tests.store.engines import Feeder, running

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS: Final = 60.0
"""Everything here ends long before."""


@contextmanager
def pooler(url: str, mode: str) -> Generator[str]:
    """Run PgBouncer before a database; provide the URL to connect to."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("no pgbouncer")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    parts = urlsplit(url)
    host, role, name = parse_qs(parts.query)["host"][0], parts.username, parts.path[1:]
    with tempfile.TemporaryDirectory(prefix="arcp-pooler-") as folder:
        settings = Path(folder) / "settings"
        settings.write_text(
            f"[databases]\n{name} = host={host} dbname={name} user={role}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = {mode}\n"
        )
        Path(folder).chmod(0o755)
        # It refuses to run as root.
        who = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
        with subprocess.Popen([program, settings], **who) as process:  # type: ignore[call-overload]
            try:
                until_accepting(port, process)
                yield f"postgresql://{role}@127.0.0.1:{port}/{name}"
            finally:
                process.terminate()


def until_accepting(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a port takes connections."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        else:
            return


async def test_a_pooler_between_transactions(url: str) -> None:
    """PgBouncer's mode of transactions is recognised, before anything is stored through it."""
    with pooler(url, "transaction") as through:
        store = PostgresStore(through)
        with trio.fail_after(SECONDS), pytest.raises(StoreError, match="use its session mode"):
            await store.run()


async def test_a_pooler_between_sessions(url: str) -> None:
    """In its mode of sessions PgBouncer is as good as the server."""
    with pooler(url, "session") as through, trio.fail_after(SECONDS):
        async with running(PostgresStore(through, synchronous=False)) as store:
            await Feeder(store).session().committed()
            assert await store.session("S") is not None
