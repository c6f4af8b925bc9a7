"""Fixtures for pytest: `pytest_plugins = ["arcp_trio.testing.fixtures"]` in the root `conftest.py`.

    async def test_greeting(arcp_runtime, arcp_client, autojump_clock):
        @arcp_runtime.agent("greeter", version="1.0.0")
        async def greeter(job):
            return f"hello {job.input}"

        job = await arcp_client.submit("greeter", "Ada")
        assert await job.result() == "hello Ada"

A fixture of your own that builds on these must be an argument of the test: pytest-trio does not
run an async fixture that is only `autouse`.

The fixtures need pytest-trio (the extra `testing` installs it), in its `trio_mode` or
with `@pytest.mark.trio` on the test. No entry point loads them, as every run of pytest would then
import this package wherever it is installed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from importlib.util import find_spec
from typing import Final

from arcp_trio import Client, MemoryStore, Runtime, StaticTokens
from arcp_trio.extras import how_to_install
from arcp_trio.testing.clock import TrioClock
from arcp_trio.testing.pair import open_pair
from arcp_trio.testing.peer import TEST_TOKEN

if find_spec("pytest") is None or find_spec("pytest_trio") is None:
    raise ImportError(f"the fixtures need pytest and pytest-trio: {how_to_install('testing')}")

import pytest

PRINCIPAL: Final = "tester"
"""The principal of the test's clients."""


@pytest.fixture
async def arcp_runtime() -> AsyncGenerator[Runtime, None]:
    """Start a runtime with a store in memory; the test registers agents on it."""
    auth = StaticTokens({TEST_TOKEN: PRINCIPAL})
    runtime = Runtime(auth=auth, store=MemoryStore(), clock=TrioClock())
    async with runtime:
        yield runtime


@pytest.fixture
async def arcp_client(arcp_runtime: Runtime) -> AsyncGenerator[Client, None]:
    """Connect a client to `arcp_runtime`."""
    async with open_pair(arcp_runtime) as client:
        yield client
