"""A busy loop sleeps now and then while a thread works, so that the thread gets Python's lock."""

from __future__ import annotations

import time

import pytest
import trio

from arcp_trio.store import naps
from arcp_trio.store.naps import Naps

NAP_SECONDS = 0.01
PASSES = 20


@pytest.fixture(autouse=True)
def _at_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naps, "BUSY_SECONDS", 0)
    monkeypatch.setattr(naps, "NAP_SECONDS", NAP_SECONDS)


async def _seconds_of_passes() -> float:
    began = time.perf_counter()
    for _ in range(PASSES):
        await trio.lowlevel.checkpoint()
    return time.perf_counter() - began


async def test_a_busy_loop_naps_during_the_block() -> None:
    """A loop that always has something to do sleeps while somebody is in the block."""
    with Naps():
        assert await _seconds_of_passes() >= (PASSES - 1) * NAP_SECONDS


async def test_blocks_overlap() -> None:
    """The loop naps until the last block has ended, and no longer."""
    both = Naps()
    with both:
        with both:
            pass
        assert await _seconds_of_passes() >= (PASSES - 1) * NAP_SECONDS
    with pytest.raises(KeyError):
        trio.lowlevel.remove_instrument(both)
