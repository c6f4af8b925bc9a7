"""A gateway to mint keys at."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.provisioners.gateway import Gateway, open_gateway


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loopback interface is not reached through what proxy this machine may have."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
async def gateway() -> AsyncGenerator[Gateway]:
    """A gateway without keys."""
    async with open_gateway() as gateway:
        yield gateway
