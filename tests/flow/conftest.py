"""Fixtures of the tests of subscriptions and listings."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from arcp_trio import Policy
from tests.flow.observing import STORE_NAMES, STORES, Scene, open_scene


@pytest.fixture
def policy() -> Policy | None:
    """The runtime's, for a module to say; everybody sees their own jobs, unless it does."""
    return None


@pytest.fixture(params=STORES, ids=STORE_NAMES)
async def scene(
    request: pytest.FixtureRequest, policy: Policy | None
) -> AsyncGenerator[Scene, None]:
    """A runtime over each engine."""
    with request.param() as store:
        async with open_scene(store, policy=policy) as opened:
            yield opened
