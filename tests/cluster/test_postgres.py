"""The PostgreSQL that tests get."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import trio

from tests.postgres import shared_server
from tests.postgres_server import own_server
from tests.processes import gone

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

ROOT = Path(__file__).parents[2]

USER = """
import os, sys, time
import psycopg
from tests.postgres import shared_server

with psycopg.connect(shared_server()) as there:
    data = there.execute("SHOW data_directory").fetchone()[0]
print(open(f"{data}/postmaster.pid").readline().strip(), flush=True)
time.sleep(60)
"""


def test_each_test_has_a_database_of_its_own(database: str) -> None:
    """A test's database is empty, whatever others have on the same server."""
    with psycopg.connect(database) as there:
        there.execute("CREATE SCHEMA arcp")
        (found,) = there.execute("SELECT current_database()")
    assert database.startswith("postgresql://")
    assert found[0] in database
    with psycopg.connect(shared_server()) as other:
        assert not other.execute("SELECT FROM pg_namespace WHERE nspname = 'arcp'").fetchall()


def test_a_server_goes_with_the_run_that_is_killed() -> None:
    """No server is left of a run that is killed without warning."""
    kept = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    with subprocess.Popen(
        [sys.executable, "-c", USER], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=kept
    ) as run:
        assert run.stdout is not None
        server = int(run.stdout.readline())
        run.send_signal(signal.SIGKILL)
    trio.run(gone, [server])


def test_what_was_committed_survives_a_crash_of_the_server() -> None:
    """A server of a test's own can be stopped as by a crash, and started again."""
    with own_server() as server:
        server.start()
        with psycopg.connect(server.url()) as there:
            there.execute("CREATE TABLE kept AS SELECT 1")
        server.stop(signal.SIGQUIT)
        server.start()
        with psycopg.connect(server.url()) as there:
            assert there.execute("TABLE kept").fetchall() == [(1,)]
