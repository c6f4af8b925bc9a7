"""A runtime with worker processes, and a peer of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from arcp_trio import Runtime
from arcp_trio.testing import Peer, open_peer
from tests.workers.support import open_runtime, open_with_workers


@pytest.fixture
async def runtime() -> AsyncGenerator[Runtime, None]:
    """A runtime with two worker processes."""
    async with open_runtime() as entered:
        yield entered


@pytest.fixture
async def peer(runtime: Runtime) -> AsyncGenerator[Peer, None]:
    """A peer whose session is open, and who has time for workers to start."""
    async with open_peer(runtime) as connected:
        await connected.hello()
        yield connected


@pytest.fixture
async def single() -> AsyncGenerator[Peer, None]:
    """A peer of a runtime with a single worker."""
    async with open_with_workers(1) as connected:
        yield connected
