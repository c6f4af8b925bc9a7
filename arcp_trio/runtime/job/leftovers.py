"""Files that agents leave beside the store: they go when the jobs do that they belong to."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, runtime_checkable

import trio

from arcp_trio.store.errors import StoreError

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.agents import Agents
    from arcp_trio.runtime.limits import Limits

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 60.0

IsKept: TypeAlias = Callable[[str], Awaitable[bool]]
"""Tells by its id whether a job is kept in the store."""


@runtime_checkable
class LeavesFiles(Protocol):
    """An agent's function that leaves files of its jobs."""

    async def sweep(self, is_kept: IsKept, limits: Limits) -> None:
        """Remove the files of jobs that are no longer kept, and what is past a limit."""
        ...


async def sweep(core: Core, agents: Agents) -> None:
    """Have files removed whose jobs are past their retention, until cancelled."""

    async def is_kept(job_id: str) -> bool:
        return await core.store.owner(job_id) is not None

    while True:
        functions: set[object] = {agent.function for agent in agents}
        for function in functions:
            if isinstance(function, LeavesFiles):
                try:
                    await function.sweep(is_kept, core.limits)
                except (OSError, StoreError) as error:
                    log.warning("files of jobs not removed", extra={"error": str(error)})
        await trio.sleep(SWEEP_SECONDS)
