"""What earlier runs of durable jobs have left is read at a start, for one job after the other."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.job.approvals import reopen_approvals
from arcp_trio.runtime.job.asking import reopen_questions
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.wire.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arcp_trio.runtime.job.job import Job

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 1.0
LAST_PAUSE_SECONDS: Final = 30.0
"""Between tries; each is twice the one before."""

GIVEN_UP_AFTER: Final = 60.0
"""Seconds after which a job ends that alone cannot be read: the store can read its row."""


async def recall_all(jobs: Sequence[Job]) -> None:
    """Give each job what its earlier runs have left, and the questions that they have asked.

    A job whose memos cannot be read holds up no other: it is tried again after all others.
    """
    unread, pause = list(jobs), FIRST_PAUSE_SECONDS
    patience_ends = trio.current_time() + GIVEN_UP_AFTER
    while unread:
        unread = [job for job in unread if not await _recall(job, patience_ends)]
        if unread:
            await trio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)


async def _recall(job: Job, patience_ends: float) -> bool:
    """Have one job remember, or end it if it never will; return False if it is to wait."""
    assert job.memory.recall is not None
    try:
        if job.outcome is None and not job.suspended:
            await job.memory.load(job.core.store.for_principal(job.principal))
            reopen_questions(job)
            reopen_approvals(job)
            job.questions.show(job)
    except StoreError as error:
        if not job.memory.recall.tried.is_set():
            log.warning("memos not read, yet", extra=job.facts | {"error": str(error)})
            job.memory.recall.tried.set()
        if trio.current_time() < patience_ends or not await _row_is_readable(job):
            return False
        _give_up(job, error)
    except Fenced:  # another node goes on with the job
        job.memory.recall.tried.set()
        return False
    except Exception as error:  # noqa: BLE001 - a fence: what fails here ends the job alone
        _give_up(job, error)
    job.memory.recall.end()
    return True


async def _row_is_readable(job: Job) -> bool:
    """Return whether the store can be read, but for what this job remembers."""
    try:
        return await job.core.store.job(job.id) is not None
    except (StoreError, Fenced):
        return False


def _give_up(job: Job, error: Exception) -> None:
    log.error("memos cannot be read: the job ends", extra=job.facts, exc_info=error)
    job.decide(outcome.failed(InternalError("what the job remembers cannot be read")))
