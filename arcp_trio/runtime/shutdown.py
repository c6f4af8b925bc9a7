"""The end of all jobs and connections when the runtime shuts down, within bounds of time."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.farewell import Farewell
from arcp_trio.runtime.job import outcome
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from arcp_trio.runtime.connection.attendance import Attendance
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.sessions import Sessions

log = logging.getLogger(__name__)

GRACE_SECONDS: Final = 2.0
"""How long agents may clean up at shutdown, at most."""

REVOKE_SECONDS: Final = 1.0
"""How long credentials may take to be revoked then; the next start revokes the rest."""

FAREWELL: Final = Farewell(CloseCode.GOING_AWAY, "the runtime is shutting down")


async def end_jobs(core: Core, jobs: Jobs, *, store_failed: bool) -> None:
    """End all jobs, and wait for their ends to be stored and their credentials to be revoked.

    Args:
        core: what the jobs run on.
        jobs: all of them.
        store_failed: nothing will be stored any longer, so the jobs are left to the next start.
    """
    ending = sum(not job.suspended for job in jobs.live.values())
    if ending:
        log.info("ending jobs", extra={"jobs": ending})
    revocations_end = trio.current_time() + REVOKE_SECONDS
    jobs.revoker.hurry(REVOKE_SECONDS)
    if store_failed:
        jobs.leave_all(GRACE_SECONDS)
    else:
        jobs.end_all(outcome.failed(InternalError("the runtime was shut down")), GRACE_SECONDS)
    # Ends that a store in trouble does not take now are made up for by the next start.
    stores_nothing = store_failed or core.store.trouble is not None
    with trio.move_on_after(GRACE_SECONDS + core.limits.close_seconds):
        await (jobs.agents_left() if stores_nothing else jobs.none_left())
    with trio.CancelScope(deadline=revocations_end):
        await jobs.revoker.idle()
    jobs.revoker.hurry(0)
    jobs.abandon_all()


async def leave_at_once(core: Core, jobs: Jobs, attended: Attendance) -> None:
    """End what a node has that is gone: connections at once, and jobs without an end."""
    core.farewells_end = trio.current_time() + core.limits.close_seconds
    attended.end_all(Farewell(CloseCode.ELSEWHERE, "another node goes on with the session"))
    await end_jobs(core, jobs, store_failed=True)
    with trio.CancelScope(deadline=core.farewells_end):
        await attended.none_left()


async def leave_to_others(
    core: Core, sessions: Sessions, attended: Attendance, drain: Callable[[], Awaitable[None]]
) -> None:
    """Have clients go on at other nodes, and `drain` durable jobs, too; the other jobs stay."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(drain, name="drain")
        farewell = Farewell(CloseCode.ELSEWHERE, "go on at another node")
        await end_connections(core, sessions, attended, farewell)
    core.farewells_end = math.inf


async def end_connections(
    core: Core, sessions: Sessions, attended: Attendance, farewell: Farewell = FAREWELL
) -> None:
    """Have each connection end, after everything its session is owed; wait for that in bounds."""
    # A second shutdown, at the end of the runtime's block, has no time of its own.
    farewells_end = trio.current_time() + core.limits.close_seconds
    core.farewells_end = min(core.farewells_end, farewells_end)
    if attended:
        log.info("closing connections", extra={"connections": len(attended)})
    with trio.CancelScope(deadline=core.farewells_end):
        attended.end_without_session(farewell)
        await sessions.say_goodbye(farewell)
        await attended.none_left()
