"""A runtime as one node of several: its parts beside those of a runtime that is alone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.cluster.members import Members
from arcp_trio.store.errors import Fenced, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.durable.beginnings import Beginnings
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.store.shared import Shared

log = logging.getLogger(__name__)


class Cluster:
    """What a node has to do with the others."""

    def __init__(self, core: Core, jobs: Jobs, beginnings: Beginnings, shared: Shared) -> None:
        self._core = core
        self._shared = shared
        self.members = Members(core, jobs, beginnings, shared)
        shared.resume_window_seconds = core.limits.resume_window_seconds

    async def run(self, over: Callable[[], None]) -> None:
        """Be a node, until cancelled.

        Args:
            over: is called as soon as this node is gone, in another thread.

        Raises:
            Fenced: this node is gone.
        """
        log.info("node joined", extra={"node": self._shared.node, "node_name": self._shared.name})
        await self.members.run(over)

    async def leave(self) -> None:
        """Be gone, once everything is stored; what is left is for the others to adopt."""
        with trio.move_on_after(self._core.limits.close_seconds):
            try:
                await self._shared.leave()
            except (StoreError, Fenced) as error:
                log.warning("node not gone, others adopt it", extra={"error": str(error)})
