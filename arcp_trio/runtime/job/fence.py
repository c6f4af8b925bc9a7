"""Round an agent: whatever it returns or raises becomes its job's outcome, and goes no further."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, cast

import trio

from arcp_trio.groups import unwrapped
from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.job.outcome import Outcome
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.json import MAX_DEPTH, Json, dumps

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

log = logging.getLogger(__name__)


def returned(job: Job, result: Json) -> Outcome:
    """What a job comes to whose agent has returned this."""
    streamed = job.streamed
    if streamed is not None:
        fault = streamed.fault(result)
        if fault is not None:
            log.error("agent streamed badly", extra=job.facts | {"error": fault.message})
            return outcome.failed(fault)
        if job.streams:
            return outcome.streamed(streamed.id, streamed.size)
        result = streamed.inline()
    try:
        encoded = dumps(result, max_depth=MAX_DEPTH - 2)  # it stands two levels below the frame
    except ValueError:
        log.exception("agent returned what is not JSON", extra=job.facts)
        return outcome.failed(InternalError("the agent returned what is not JSON"))
    if len(encoded) > job.most_bytes:
        log.error("agent returned too much", extra=job.facts | {"bytes": len(encoded)})
        core = job.core
        too_big = limit_hit("frame_bytes_out", core.limits.frame_bytes_out)
        return outcome.failed(core.metrics.refused(too_big))
    return outcome.succeeded(encoded)


def raised(job: Job, error: BaseException) -> Outcome:
    """What a job comes to whose agent has raised this."""
    cause = unwrapped(error)
    known = cause if isinstance(cause, ArcpError) else job.explained(cause)
    its_own = None if known is None else outcome.raised(known, job.most_bytes)
    if its_own is not None:
        return its_own
    # The text of an exception may hold secrets: it stays here (§12).
    log.error("agent failed", extra=job.facts, exc_info=error)
    return outcome.failed(InternalError("the agent failed"))


def not_the_agents(error: BaseException) -> BaseException | None:
    """The part of an exception that must go on: Ctrl-C, cancellation from further out."""
    if not trio.lowlevel.in_trio_task():
        return error  # the interpreter is throwing the coroutine away
    beyond: tuple[type[BaseException], ...] = (KeyboardInterrupt,)
    if trio.current_effective_deadline() == -math.inf:
        # Else it is one that the agent has kept from somewhere.
        beyond = (*beyond, trio.Cancelled)
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).subgroup(beyond)
    return error if isinstance(error, beyond) else None
