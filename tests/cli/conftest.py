"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.clients import Commands, served
from tests.cli.processes import Starter, starter


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """Start `arcp_trio` with some arguments, in the test's own folder."""
    with starter(tmp_path) as start_one:
        yield start_one


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Run commands against a runtime that the tests of a file share."""
    with served(tmp_path_factory.mktemp("clients")) as to_run:
        yield to_run
