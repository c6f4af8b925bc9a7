"""Limits for each principal count what it has, wherever it is, as of a moment ago."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from arcp_trio.store.outage import Outage

if TYPE_CHECKING:
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.sessions import Sessions
    from arcp_trio.store.shared import Shared

log = logging.getLogger(__name__)


async def count_elsewhere(shared: Shared, jobs: Jobs, sessions: Sessions, seconds: float) -> None:
    """Tell jobs and sessions every `seconds` what principals have that is not this node's.

    Jobs that this node takes over are here at once, and so the others are counted again at once.
    """
    outage = Outage(log, "other nodes' jobs not counted")
    while True:
        with outage:
            held = await shared.held_elsewhere()
            jobs.elsewhere = {principal: each.jobs for principal, each in held.items()}
            sessions.elsewhere = {principal: each.sessions for principal, each in held.items()}
        with trio.move_on_after(seconds):
            await jobs.taken.wait()
