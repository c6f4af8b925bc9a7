"""A runtime as one node of several: its parts beside those of a runtime that is alone."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import trio

from arcp_trio.extras import how_to_install
from arcp_trio.runtime.cluster.asking import Asker
from arcp_trio.runtime.cluster.counting import count_elsewhere
from arcp_trio.runtime.cluster.following import Following
from arcp_trio.runtime.cluster.members import BEATS, Members
from arcp_trio.runtime.cluster.moving import SharedParking
from arcp_trio.runtime.cluster.obeying import Obeyer
from arcp_trio.runtime.cluster.waiting import WaitingJobs
from arcp_trio.runtime.job.durable.beginnings import ELSEWHERE, Beginnings
from arcp_trio.runtime.shutdown import GRACE_SECONDS
from arcp_trio.runtime.tasks import keep_running
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.outage import Outage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from arcp_trio.runtime.cluster.revealing import Revealer
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.sessions import Sessions
    from arcp_trio.store.shared import Shared

log = logging.getLogger(__name__)


class Cluster:
    """What a node has to do with the others."""

    def __init__(self, core: Core, jobs: Jobs, shared: Shared) -> None:
        self._core = core
        self._shared = shared
        shared.time_calls(core.metrics.engine_called)
        self._jobs = jobs
        beginnings = Beginnings(core, jobs, ELSEWHERE)
        self.waiting = WaitingJobs(core, jobs, beginnings, shared)
        self.members = Members(core, jobs, beginnings, shared, self.waiting)
        self.asker = Asker(
            core.store, shared, core.limits.command_seconds, core.metrics.commands.observe
        )
        self._revealer = jobs.other_wallets = _revealer(core, shared, jobs, self.asker)
        self.following = jobs.other_journals = Following(core, shared, jobs, self.asker.hear)
        self.parking = SharedParking(core, jobs, shared, shared.node, self.asker.ask_to_release)

    async def run(self, sessions: Sessions, over: Callable[[], None]) -> None:
        """Be a node, until cancelled.

        Args:
            sessions: those of this node.
            over: is called as soon as this node is gone, in another thread.

        Raises:
            Fenced: this node is gone.
        """
        shared, seconds = self._shared, self._core.limits.node_seconds / BEATS
        async with trio.open_nursery() as nursery:
            let_go = sessions.let_go
            obeyer = Obeyer(self._core, shared, self._jobs, let_go, self._revealer, nursery)
            count = partial(count_elsewhere, shared, self._jobs, sessions, seconds)
            works: dict[str, Callable[[], Awaitable[None]]] = {
                "commands": partial(self._exchange, obeyer),
                "journals of other nodes": self.following.run,
                "jobs of other nodes": count,
                "jobs that wait for a node": partial(self.waiting.take, seconds),
                "sessions not awake": partial(self.parking.park_strays, sessions),
            }
            for name, work in works.items():
                nursery.start_soon(keep_running, work, name=name)
            await self.members.run(over)

    async def _exchange(self, obeyer: Obeyer) -> None:
        """Hear other nodes' answers and obey what they ask, when woken and now and then."""
        outage = Outage(log, "other nodes cannot be heard")
        while True:
            with trio.move_on_after(self._core.limits.follow_seconds):
                await self._shared.asked()
            with outage:
                await self.asker.hear()
                await obeyer.obey_all()

    async def drain(self) -> None:
        """Tell the other nodes that this one is about to end, and leave durable jobs to them."""
        with trio.move_on_after(self._core.limits.close_seconds):
            try:
                await self._shared.drain()
            except (StoreError, Fenced) as error:
                log.warning("other nodes not told of the end", extra={"error": str(error)})
        await self.waiting.leave(GRACE_SECONDS)

    async def leave(self) -> None:
        """Be gone, once everything is stored; what is left is for the others to adopt."""
        with trio.move_on_after(self._core.limits.close_seconds):
            try:
                await self._shared.leave()
            except (StoreError, Fenced) as error:
                log.warning("node not gone, others adopt it", extra={"error": str(error)})


def _revealer(core: Core, shared: Shared, jobs: Jobs, asker: Asker) -> Revealer | None:
    """Return what reveals credentials; None if this node cannot."""
    if not jobs.revoker.offered:
        return None
    try:
        # Not before: it needs a library that is not installed everywhere.
        from arcp_trio.runtime.cluster.revealing import Revealer  # noqa: PLC0415
    except ImportError as error:
        facts = {"error": str(error), "install": how_to_install("sealed")}
        log.info("clients at other nodes than their jobs get no credentials", extra=facts)
        return None
    return Revealer(core, shared, asker.ask_to_reveal)
