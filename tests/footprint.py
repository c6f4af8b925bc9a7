"""What a process has in use, for tests that check that nothing stays behind."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import trio
from trio.testing import wait_all_tasks_blocked

PATIENCE_SECONDS = 60.0


def tasks() -> int:
    """Return how many tasks there are."""
    return trio.lowlevel.current_statistics().tasks_living


def descriptors() -> int:
    """Return how many file descriptors are open."""
    return sum(1 for _ in Path("/dev/fd").iterdir())


def blocks() -> int:
    """Return how many pieces of memory are in use, after a collection."""
    gc.collect()
    return sys.getallocatedblocks()


async def footprint() -> tuple[int, int]:
    """Return how many file descriptors and tasks there are once all tasks are blocked."""
    await wait_all_tasks_blocked(0.01)
    return descriptors(), tasks()


async def settles(before: tuple[int, int]) -> None:
    """Wait until file descriptors and tasks are as many as before."""
    with trio.move_on_after(PATIENCE_SECONDS):
        while (after := await footprint()) != before:
            pass
    assert after == before


async def tasks_back_to(baseline: int) -> bool:
    """Return whether there are at most `baseline` tasks once all are blocked."""
    await wait_all_tasks_blocked()
    return tasks() <= baseline
