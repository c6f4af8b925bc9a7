"""Sleeping in a loop that may be held: a late task must not count the delay as silence."""

from __future__ import annotations

from typing import Final

import trio

LATE_SECONDS: Final = 0.2
"""A loop that is late by more than this was held by something that did not give way."""


async def sleep_until(deadline: float) -> bool:
    """Sleep until `deadline`, and return whether the loop was late."""
    due = max(deadline, trio.current_time())
    await trio.sleep_until(deadline)
    return trio.current_time() - due > LATE_SECONDS
