"""Starting tasks that inherit nothing, and keeping background work going."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVarTuple

import trio

from arcp_trio.nurseries import tasks_beside
from arcp_trio.store.errors import Fenced

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 5.0
"""How long background work that failed waits before it begins again."""

_Ts = TypeVarTuple("_Ts")


def start_clean(
    nursery: trio.Nursery,
    function: Callable[[*_Ts], Awaitable[object]],
    *args: *_Ts,
    name: str,
) -> None:
    """Start a task in an empty context.

    A task that outlives its starter must not keep the starter's context variables and trace span.
    """
    start = partial(nursery.start_soon, function, *args, name=name)
    contextvars.Context().run(start)


async def keep_running(work: Callable[[*_Ts], Awaitable[None]], *args: *_Ts) -> None:
    """Run background work until it returns, or finds out that this node is gone.

    Another failure is logged, and the work is run again.
    """
    while True:
        try:
            return await _until_gone(work, *args)
        except Exception:
            log.exception("background work failed, and goes on")
            await trio.sleep(PAUSE_SECONDS)


async def _until_gone(work: Callable[[*_Ts], Awaitable[None]], *args: *_Ts) -> None:
    """Do work, and leave it once this node is gone.

    Other errors are raised, also those that come in one group with `Fenced`.
    """
    try:
        await work(*args)
    except* Fenced:
        pass  # the writer or a beat finds that out, too, and ends the node


async def first_of(*waits: Callable[[], Awaitable[None]]) -> None:
    """Return when one of `waits` returns, and cancel the others; an error is raised as it is."""
    over = trio.Event()

    async def wait_for(wait: Callable[[], Awaitable[None]]) -> None:
        await wait()
        over.set()

    async with tasks_beside() as nursery:
        for wait in waits:
            nursery.start_soon(wait_for, wait)
        await over.wait()
