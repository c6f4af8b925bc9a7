"""The PostgreSQL that the tests of a run share."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.postgres import shared_server
from tests.processes import children_of


@pytest.mark.postgres
def test_the_process_that_starts_it_has_no_child_more() -> None:
    """The keeper of the server is not a child of the process that runs the tests."""
    shared_server()
    commands: list[bytes] = []
    for pid in children_of(os.getpid()):
        with suppress(FileNotFoundError):
            commands.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    assert not [command for command in commands if b"tests.postgres" in command]
