"""Nurseries, and exceptions inside the groups that they put them in."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast, overload

import trio


@overload
def unwrapped(error: Exception) -> Exception: ...
@overload
def unwrapped(error: BaseException) -> BaseException: ...
def unwrapped(error: BaseException) -> BaseException:
    """Return the one exception inside the groups around it; a group of several stays a group."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return unwrapped(group.exceptions[0]) if len(group.exceptions) == 1 else group


def leaves(error: Exception) -> list[Exception]:
    """Return all exceptions inside the groups around them, in order."""
    if not isinstance(error, ExceptionGroup):
        return [error]
    group = cast("ExceptionGroup[Exception]", error)
    return [leaf for inner in group.exceptions for leaf in leaves(inner)]


@asynccontextmanager
async def tasks_beside() -> AsyncGenerator[trio.Nursery, None]:
    """Open a nursery for tasks that end with the block.

    An exception of the block leaves it as it is, and not in a group.
    """
    manager = trio.open_nursery()
    nursery = await manager.__aenter__()
    try:
        yield nursery
    finally:
        # What cancels the block may not take the place of its exception.
        nursery.cancel_scope.shield = True
        nursery.cancel_scope.cancel(reason="the block is over")
        await manager.__aexit__(None, None, None)  # noqa: ASYNC102 - its tasks are cancelled
