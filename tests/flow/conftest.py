"""Fixtures of the tests of subscriptions and listings."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from arcp_trio import Policy
from arcp_trio.testing import Peer
from tests.flow.observing import Scene, open_scene
from tests.flow.support import Flow, open_flow
from tests.store.engines import EACH_ENGINE


@pytest.fixture
def policy() -> Policy | None:
    """The runtime's policy, for a module to override; by default principals see their own jobs."""
    return None


@pytest.fixture(params=EACH_ENGINE)
async def scene(
    request: pytest.FixtureRequest, policy: Policy | None
) -> AsyncGenerator[Scene, None]:
    """A scene over each storage engine."""
    with request.param.make() as store:
        async with open_scene(store, policy=policy) as opened:
            yield opened


@pytest.fixture
async def flow() -> AsyncGenerator[Flow, None]:
    """A flow stage with the default limits."""
    async with open_flow() as opened:
        yield opened


@pytest.fixture
async def peer(flow: Flow) -> Peer:
    """A client with a session."""
    return await flow.welcomed()
