"""Waits for the first of several things."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from arcp_trio.runtime.tasks import first_of


async def _fail() -> None:
    await trio.sleep(1)
    raise ValueError("a wait has failed")


async def test_the_first_ends_the_others(autojump_clock: MockClock) -> None:
    """The others are cancelled when one returns."""
    await first_of(trio.sleep_forever, partial(trio.sleep, 1))
    assert trio.current_time() == 1


async def test_an_error_is_in_no_group(autojump_clock: MockClock) -> None:
    """The error of one wait is raised as it is, so that callers can tell what it is."""
    with pytest.raises(ValueError, match="a wait has failed"):
        await first_of(trio.sleep_forever, _fail)


async def test_a_cancel_ends_all(autojump_clock: MockClock) -> None:
    """A deadline around the waits is kept."""
    with trio.move_on_after(2) as scope:
        await first_of(trio.sleep_forever, trio.sleep_forever)
    assert scope.cancelled_caught
    assert trio.current_time() == 2
