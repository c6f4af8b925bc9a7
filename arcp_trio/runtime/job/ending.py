"""The end of a job, once it is decided: its agent stops, its terminal is written, and it is over.

A suspended job ends in this runtime without a terminal.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from arcp_trio.runtime.job import costs
from arcp_trio.runtime.job.events import close_calls
from arcp_trio.runtime.job.outcome import log_end

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

log = logging.getLogger(__name__)


async def stop_agent(job: Job) -> None:
    """Wait for the agent to stop within its grace; finish without it if it does not."""
    if not job.ended and job.agent_run.begun:  # else it is never called
        if await job.agent_run.stopped():
            return
        log.warning("agent does not stop: cut off", extra=job.facts)
        job.agent_run.cancel("the job is over")
    await finish(job)


async def finish(job: Job) -> None:
    """End a job whose agent has stopped, or is not waited for any longer."""
    if job.suspended:
        _leave(job)
    else:
        await _write_terminal(job)


def _leave(job: Job) -> None:
    """Remove a job, which is suspended, from this runtime."""
    if not job.over.is_set():
        left = job.left_to
        log.info("job suspended" if left is None else f"job left to {left}", extra=job.facts)
        if job.wallet is not None:
            job.wallet.close()
        job.over.set()
        job.leave_tree()
        job.jobs.one_is_left_alone()
        job.span.end({"arcp.job.outcome": "suspended" if left is None else "left"})


async def _write_terminal(job: Job) -> None:
    """Write the terminal, after the children's and the revocations.

    The job stays among those alive until it is stored.
    """
    job.children.end_all(job.agent_run.grace)
    if job.wallet is not None:
        job.wallet.close()
    await job.children.none_left()
    if job.wallet is not None:
        await job.wallet.revoked()
    if job.ended:
        return
    outcome = job.outcome
    assert outcome is not None
    close_calls(job)
    job.ended = True
    job.finished_at = now = job.core.clock.now()
    job.status = outcome.status
    job.core.metrics.finished[outcome.status] += 1
    group = job.journal.finish(
        outcome,
        now,
        budget=costs.budget_left(job),
        spent=costs.spent(job),
        last_event=job.last_event.words,
        durable=job.memory.durable,
    )
    job.over.set()
    job.leave_tree()
    log_end(job, outcome, job.authority.budget.remaining)
    await group.committed()
    job.jobs.remove(job)
