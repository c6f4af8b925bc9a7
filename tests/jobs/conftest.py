"""Fixtures of the tests of jobs: a runtime, a connected peer, and a workspace for files."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from arcp_trio import Runtime
from arcp_trio.testing import Peer, open_peer
from tests.footprint import descriptors
from tests.jobs import doer
from tests.jobs.doer import SteppedClock
from tests.jobs.workspace import Workspace
from tests.stage import make_runtime, simple_agents, stubborn_agents


@pytest.fixture
def clock() -> SteppedClock:
    """The runtime's wall clock, which a test can set."""
    return SteppedClock()


@pytest.fixture
async def runtime(clock: SteppedClock) -> AsyncGenerator[Runtime, None]:
    """A runtime with the simple agents, a stubborn one, and one that does what its input lists."""
    async with make_runtime(simple_agents, stubborn_agents, doer.agents, clock=clock) as entered:
        yield entered


@pytest.fixture
async def peer(runtime: Runtime) -> AsyncGenerator[Peer, None]:
    """A peer whose session is open."""
    async with open_peer(runtime) as connected:
        await connected.hello()
        yield connected


@pytest.fixture
def files(runtime: Runtime, peer: Peer, tmp_path: Path) -> Generator[Workspace, None, None]:
    """A workspace; after the test, nothing outside it has changed and no file is left open."""
    workspace = Workspace(runtime, peer, tmp_path.resolve())
    before = descriptors()
    yield workspace
    assert workspace.untouched()
    assert descriptors() <= before
