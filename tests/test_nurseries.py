"""Tasks beside a block end with it, and what goes wrong is raised as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.nurseries import tasks_beside


async def _fail() -> None:
    raise ValueError("a task has failed")


async def _end_slowly() -> None:
    try:
        await trio.sleep_forever()
    finally:
        with trio.move_on_after(2, shield=True):
            await trio.sleep_forever()


async def _raise_beside(task: Callable[[], Awaitable[None]]) -> None:
    async with tasks_beside() as nursery:
        nursery.start_soon(task)
        await wait_all_tasks_blocked()
        raise KeyError("the block")


async def test_tasks_end_with_the_block() -> None:
    """A task that would go on for ever is cancelled at the end of the block."""
    ended = trio.Event()

    async def go_on() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with tasks_beside() as nursery:
        nursery.start_soon(go_on)
        await wait_all_tasks_blocked()
    assert ended.is_set()


async def test_what_a_task_raises_is_in_no_group() -> None:
    """The error of a task ends the block, and leaves it as it is."""
    with pytest.raises(ValueError, match="a task has failed"):
        await _raise_beside(_fail)


async def test_what_the_block_raises_is_in_no_group() -> None:
    """The error of the block leaves it as it is."""
    with pytest.raises(KeyError, match="the block"):
        await _raise_beside(trio.sleep_forever)


async def test_a_cancel_takes_nothing_away(autojump_clock: MockClock) -> None:
    """A cancel that comes while the tasks end does not take the place of the block's error."""
    with trio.move_on_after(1) as scope, pytest.raises(KeyError, match="the block"):
        await _raise_beside(_end_slowly)
    assert trio.current_time() == 2
    assert not scope.cancelled_caught
