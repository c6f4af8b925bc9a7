"""Nurseries whose tasks end with a block."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from arcp_trio.groups import unwrapped


@asynccontextmanager
async def tasks_beside() -> AsyncGenerator[trio.Nursery, None]:
    """Open a nursery for tasks that end with the block.

    An exception of the block, or of a task, is raised as it is, and not in a group.
    """
    manager = trio.open_nursery()
    nursery = await manager.__aenter__()
    try:
        yield nursery
    finally:
        # What cancels the block may not take the place of its exception.
        nursery.cancel_scope.shield = True
        nursery.cancel_scope.cancel(reason="the block is over")
        try:
            await manager.__aexit__(None, None, None)  # noqa: ASYNC102 - its tasks are cancelled
        except ExceptionGroup as group:
            error = unwrapped(group)
            raise error from error.__cause__
