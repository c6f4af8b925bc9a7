"""What a job refuses because it ends, has ended, or is suspended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arcp_trio.wire.errors import InternalError

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job


def refuse_if_ending(job: Job) -> None:
    """Refuse to begin anything that would outlast the job.

    Raises:
        ArcpError: the job's end is decided.
    """
    if job.outcome is not None:
        raise job.outcome.refusal()


def refuse_if_suspended(job: Job) -> None:
    """Refuse to begin anything that belongs to the next run.

    Raises:
        InternalError: the job is suspended.
    """
    if job.suspended:
        raise InternalError("the runtime is shutting down, and the job goes on after that")


def refuse_if_ended(job: Job) -> None:
    """Refuse to add anything after the terminal.

    Raises:
        ArcpError: the job has ended.
    """
    if job.ended:
        assert job.outcome is not None
        raise job.outcome.refusal()
