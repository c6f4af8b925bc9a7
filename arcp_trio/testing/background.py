"""Tasks that run beside a block of code."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from arcp_trio.groups import unwrapped


@asynccontextmanager
async def background_tasks() -> AsyncGenerator[trio.Nursery, None]:
    """Open a nursery whose tasks are cancelled when the block ends.

    An exception of the block, or of a task, is raised without the nursery's group around it, so
    that `pytest.raises` around the block recognises it.
    """
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()
    except ExceptionGroup as group:
        error = unwrapped(group)
        raise error from error.__cause__
