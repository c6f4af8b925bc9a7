"""The next run of a durable job: what it begins with, and how often there is one.

The agent is called again after a restart (see `beginnings`), or because its process has died.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from arcp_trio.runtime.job.durable.memory import Memory, Recall
from arcp_trio.runtime.job.durable.recalling import recall_all
from arcp_trio.runtime.job.events import add_event
from arcp_trio.runtime.job.questions import Questions
from arcp_trio.runtime.limits import limit_hit

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.store.queue import Group
    from arcp_trio.wire.json import JsonLike

log = logging.getLogger(__name__)

PROCESS_ENDED: Final = "the agent's process ended"
"""What clients are told of a job that begins again in another process."""


async def begin_next_run(job: Job) -> None:
    """Have a job whose agent's process has died remember, and store that it runs again.

    Raises:
        ArcpError: its processes have died too often, or it is to end.
    """
    before = job.memory
    recall = Recall()
    job.memory = Memory(
        job.core,
        job.id,
        durable=True,
        run=before.run,
        fruitless_runs=before.fruitless_runs,
        recall=recall,
        waits=True,
    )
    job.questions, job.chunks, job.costs_over = Questions(), None, 0
    job.questions.show(job)
    job.authority.approvals.clear()
    try:
        await job.core.store.flushed()
        await recall_all([job])
    finally:
        recall.end()
    job.refuse_if_ending()
    refuse_if_fruitless(job)
    await store_run(job, PROCESS_ENDED).committed()


def refuse_if_fruitless(job: Job) -> None:
    """Refuse to call an agent that has ended its process several times.

    Raises:
        InternalError: it has ended its process too often.
    """
    most = job.core.limits.runs_without_progress
    if job.memory.fruitless_runs >= most:
        last = job.memory.last_finished
        after = "it has finished no step" if last is None else f"its last finished step is {last}"
        raise limit_hit("runs_without_progress", most, what_helps=after)


def store_run(job: Job, why: str) -> Group:
    """Have it stored that the agent is called again, and tell it after all other events."""
    called = job.started_at is not None
    group = job.memory.next_run(called=called)
    if called:
        body: dict[str, JsonLike] = {
            "phase": "resumed",
            "message": why,
            "run": job.memory.run,
        }
        add_event(job, "status", body)
    job.core.metrics.begun_again += 1
    log.info("job begun again", extra=job.facts | {"run": job.memory.run})
    return group
