"""What the tests of the console share: one browser and one runtime for each file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.cli.clients import Commands, served
from tests.console.pages import chromium


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Serve the agents of the client commands, and the demo agents."""
    with served(tmp_path_factory.mktemp("console"), "--token=bob=bobs-s3cret") as to_run:
        yield to_run


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser."""
    with chromium() as started:
        yield started
