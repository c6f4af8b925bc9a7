"""A loop that is always busy sleeps now and then, so that threads get Python's lock."""

from __future__ import annotations

import time

import pytest
import trio

from arcp_trio.cli.serve import python_lock
from arcp_trio.cli.serve.python_lock import Pauses

PAUSE_SECONDS = 0.01
PASSES = 20


async def _pass() -> None:
    for _ in range(PASSES):
        await trio.lowlevel.checkpoint()


async def _rest() -> None:
    for _ in range(PASSES):
        await trio.sleep(2 * PAUSE_SECONDS)
        await trio.lowlevel.checkpoint()


def test_busy_loop_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that always has something to do sleeps again once it has been busy for long."""
    monkeypatch.setattr(python_lock, "BUSY_SECONDS", 0)
    monkeypatch.setattr(python_lock, "PAUSE_SECONDS", PAUSE_SECONDS)
    began = time.perf_counter()
    trio.run(_pass, instruments=[Pauses()])
    assert time.perf_counter() - began >= PASSES * PAUSE_SECONDS


def test_loop_that_rests_does_not_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that has just slept, because it had nothing to do, is not held up."""
    pauses: list[float] = []
    monkeypatch.setattr(python_lock, "BUSY_SECONDS", 60)
    monkeypatch.setattr(python_lock, "PAUSE_SECONDS", PAUSE_SECONDS)
    pausing = Pauses()

    async def rest_and_look() -> None:
        await trio.sleep(2 * PAUSE_SECONDS)  # from here on it has rested
        monkeypatch.setattr(time, "sleep", pauses.append)
        await _rest()

    trio.run(rest_and_look, instruments=[pausing])
    assert pauses == []
