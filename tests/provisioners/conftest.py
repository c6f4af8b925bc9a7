"""Fixtures of the provisioners' tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.provisioners.gateway import Gateway, open_gateway


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach the loopback interface without the proxy that the environment may name."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
async def gateway() -> AsyncGenerator[Gateway]:
    """Run a gateway without keys."""
    async with open_gateway() as gateway:
        yield gateway
