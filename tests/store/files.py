"""Stores in files, filled and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from arcp_trio.store.errors import StoreError
from arcp_trio.store.sqlite import SqliteStore
from tests.store.engines import Feeder, running


def on(path: Path) -> SqliteStore:
    """Return a store at this path that need not survive a loss of power."""
    return SqliteStore(path, synchronous="OFF")


async def fill(path: Path, entries: int = 3) -> None:
    """Make a store with one session that was sent all entries of one job."""
    async with running(on(path)) as store:
        feeder = Feeder(store)
        feeder.session()
        feeder.job()
        feeder.emit(count=entries - 1)
        feeder.finish()
        feeder.number_all()
        await store.flushed()


async def refusal(path: Path) -> StoreError:
    """Return the error with which the store refuses to open."""
    with pytest.raises(StoreError) as refused:
        await on(path).run()
    sentence = str(refused.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    return refused.value
