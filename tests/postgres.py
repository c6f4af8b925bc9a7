"""The PostgreSQL that all tests of a run share, and databases in it.

The server belongs to a keeper, a process that this module starts (`python -m tests.postgres`). The
keeper ends when the run does, however the run ends, and takes the server with it. It is not a child
of the worker that starts it: tests look whether their process has children.
"""

from __future__ import annotations

import fcntl
import functools
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import trio

from tests.postgres_server import PostgresMissingError, own_server, programs
from tests.processes import alive

GIVEN: Final = "ARCP_TEST_POSTGRES"
"""The environment variable with the URL of a server to use, whose role may create databases."""

_ROOT: Final = Path(__file__).parents[1]
_LOOK_SECONDS: Final = 0.1


@functools.cache
def shared_server() -> str:
    """Return the URL of the run's server, which is started if no other worker has done so.

    Raises:
        PostgresMissingError: this machine has no PostgreSQL.
    """
    if given := os.environ.get(GIVEN):
        return given
    programs()
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    pointer = Path(tempfile.gettempdir()) / f"arcp-pg-of-{run}"
    with pointer.open("a+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        file.seek(0)
        if not (url := file.read()):
            url = _start_keeper(owner, pointer)
            file.write(url)
    return url


def _start_keeper(owner: int, pointer: Path) -> str:
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.postgres", str(owner), str(pointer)],
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C is for the run; the keeper ends after it
    )
    assert keeper.stdout is not None
    with keeper.stdout:
        url = keeper.stdout.readline().strip()
        assert url.startswith("postgresql:"), url + keeper.stdout.read()
    keeper.wait()
    return url


def keep(owner: int, pointer: Path) -> None:
    """Run a server until the process of the test run ends, in a process that nobody waits for."""
    if os.fork():
        os._exit(0)
    with own_server() as server:
        server.start()
        print(server.url(), flush=True)  # noqa: T201 - the worker reads it
        sys.stdout.close()
        while alive(owner):
            time.sleep(_LOOK_SECONDS)
        pointer.unlink()


# -- databases


@contextmanager
def fresh_database() -> Generator[str]:
    """Provide the URL of an empty database, on the run's server.

    Raises:
        PostgresMissingError: this machine has no PostgreSQL.
    """
    server = shared_server()
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    try:
        yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def execute(database: str, *statements: LiteralString) -> None:
    """Execute statements, each in a transaction of its own, while other tasks go on.

    A statement may wait for a lock of a node whose messages a task of this process carries: in the
    thread of that task it would wait for ever.
    """

    def work() -> None:
        with psycopg.connect(database, autocommit=True) as db:
            for statement in statements:
                db.execute(statement)

    await trio.to_thread.run_sync(work, abandon_on_cancel=True)


# -- for pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a PostgreSQL where it cannot be had; in CI, fail it."""
    if item.get_closest_marker("postgres") is None:
        return
    try:
        shared_server()
    except PostgresMissingError as reason:
        if "CI" in os.environ:
            raise
        pytest.skip(f"no PostgreSQL: {reason}")


@pytest.fixture
def database() -> Generator[str]:
    """The URL of an empty database; a test that takes it is marked `postgres`."""
    with fresh_database() as url:
        yield url


if __name__ == "__main__":
    keep(int(sys.argv[1]), Path(sys.argv[2]))
