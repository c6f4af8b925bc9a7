"""A runtime and a connected peer for the tests of jobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from arcp_trio import Runtime
from arcp_trio.testing import Peer, open_peer
from tests.jobs.runtimes import make_runtime


@pytest.fixture
async def runtime() -> AsyncGenerator[Runtime, None]:
    """A runtime with the simple agents."""
    async with make_runtime() as entered:
        yield entered


@pytest.fixture
async def peer(runtime: Runtime) -> AsyncGenerator[Peer, None]:
    """A peer whose session is open."""
    async with open_peer(runtime) as connected:
        await connected.hello()
        yield connected
