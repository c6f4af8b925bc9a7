"""A running store of every engine, and a database with an empty one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from arcp_trio.store.interface import Store
from tests.store import databases
from tests.store.engines import EACH_ENGINE, Engine, Feeder


@pytest.fixture(params=EACH_ENGINE)
def engine(request: pytest.FixtureRequest) -> Engine:
    """The engine under test."""
    assert isinstance(request.param, Engine)
    return request.param


@pytest.fixture
async def store(engine: Engine) -> AsyncGenerator[Store, None]:
    """A store whose writer runs."""
    async with engine.running() as running:
        yield running


@pytest.fixture
def feeder(store: Store) -> Feeder:
    """A feeder of `store`."""
    return Feeder(store)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A path at which a store can be made."""
    return tmp_path / "data" / "arcp.db"


@pytest.fixture
def url() -> Generator[str]:
    """The URL of a database with an empty store."""
    with databases.empty_store() as found:
        yield found
