"""How durable jobs go on after a restart, or at another node: at a pace, each with a new call."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.groups import unwrapped
from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.job.durable.recalling import recall_all
from arcp_trio.runtime.job.durable.runs import refuse_if_fruitless, store_run
from arcp_trio.runtime.job.provisioning import announce_all
from arcp_trio.runtime.tasks import first_of
from arcp_trio.wire.errors import ArcpError, InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.jobs import Jobs

log = logging.getLogger(__name__)

ALONE: Final = 2
"""A job whose last runs, as many as this, have failed to get on is begun alone."""

ALONE_SECONDS: Final = 300.0
"""How long the others wait for it, at most: it may be slow, and not deadly."""

FIRST_PAUSE_SECONDS: Final = 1.0
LAST_PAUSE_SECONDS: Final = 60.0
"""Between tries to have credentials issued; each is twice the one before."""

RESTARTED: Final = "the runtime was restarted"
ELSEWHERE: Final = "the job goes on at another node"
"""What clients are told of a job that begins again."""


class Beginnings:
    """Durable jobs that wait for their turn to be begun again, and the pace at which they are."""

    def __init__(self, core: Core, jobs: Jobs, why: str) -> None:
        """Begin jobs among those that are alive here; clients are told `why` they begin again."""
        self._core = core
        self._jobs = jobs
        self._why = why

    async def run(self, waiting: Sequence[Job]) -> None:
        """Begin each job: first those that may end the process, one by one, then all others.

        A runtime that is about to end suspends them, and begins only those that are to end.
        """
        if self._core.closing:
            self._jobs.suspend_all()
        async with trio.open_nursery() as nursery:
            # At once, not at the pace: what they ask can be answered before they are begun.
            nursery.start_soon(recall_all, waiting, name="what durable jobs remember")
            async with trio.open_nursery() as meanwhile:
                meanwhile.start_soon(_end_late, waiting, name="time limits of waiting jobs")
                await self._begin_all(waiting)
                meanwhile.cancel_scope.cancel(reason="all jobs are begun")

    async def _begin_all(self, waiting: Sequence[Job]) -> None:
        suspects = [job for job in waiting if job.memory.fruitless_runs >= ALONE]
        others = [job for job in waiting if job.memory.fruitless_runs < ALONE]
        for job in sorted(suspects, key=lambda job: job.memory.fruitless_runs):
            self._begin(job)
            with trio.move_on_after(ALONE_SECONDS):
                await first_of(job.memory.progressed.wait, job.over.wait)
        for job in others:
            self._begin(job)
            await trio.sleep(1 / self._core.limits.jobs_begun_per_second)

    def _begin(self, job: Job) -> None:
        if not self._core.closing or (job.outcome is not None and not job.suspended):
            self._jobs.start(job, partial(_call_again, job, self._why))


async def _end_late(jobs: Sequence[Job]) -> None:
    """End each job whose time limit, or lease, ends while it waits for its turn."""
    for job in sorted(jobs, key=_latest):
        await trio.sleep_until(_latest(job))
        if job.memory.waits:
            job.decide_if_late()
            if job.outcome is not None:
                job.wind_up()


def _latest(job: Job) -> float:
    """Return when the job must end, on Trio's clock."""
    deadlines = (job.agent_run.deadline, job.authority.deadline)
    return min((each for each in deadlines if each is not None), default=math.inf)


async def _call_again(job: Job, why: str) -> None:
    """Call a job's agent again, or end the job if it must not go on."""
    try:
        job.decide_if_late()
        if job.outcome is None:
            await _prepare(job, why)
    except Exception as error:  # a fence: what fails here ends the job alone
        cause = unwrapped(error)
        if not isinstance(cause, ArcpError):
            log.exception("job cannot be begun again", extra=job.facts)
            cause = InternalError("the job could not be begun again")
        job.decide(outcome.failed(cause))
    await job.run()


async def _prepare(job: Job, why: str) -> None:
    """Wait until the job remembers, get its credentials, and store that it runs again.

    A job that is to end while it waits is not prepared any further.
    """
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_decided, job, scope, name=f"end of the wait of {job.id}")
            await job.memory.until_recalled()
            refuse_if_fruitless(job)
            await _get_credentials(job)
            job.decide_if_late()
            if job.outcome is None and not job.suspended:
                group = store_run(job, why)
                announce_all(job)
                await group.committed()
            nursery.cancel_scope.cancel(reason="the job is prepared")


async def _until_decided(job: Job, scope: trio.CancelScope) -> None:
    """Cancel the preparation once the job is to end: at a time limit, or because it is asked to."""
    with trio.move_on_at(_latest(job)):
        await job.decided.wait()
    scope.cancel(reason="the job is to end")


async def _get_credentials(job: Job) -> None:
    """Mint new credentials; ask again an upstream that does not answer."""
    if job.wallet is None:
        return
    pause = FIRST_PAUSE_SECONDS
    while job.outcome is None:
        try:
            await job.wallet.issue()
        except ArcpError as error:
            if not error.retryable:
                raise
            log.warning("credentials not issued, yet", extra=job.facts | {"error": error.message})
            await trio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)
        else:
            return
