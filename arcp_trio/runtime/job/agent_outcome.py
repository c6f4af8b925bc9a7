"""How a job ends by what its agent returns or raises (§7.3)."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, cast

import trio

from arcp_trio.groups import unwrapped
from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.job.outcome import Outcome
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.json import MAX_DEPTH, JsonLike, dumps

if TYPE_CHECKING:
    from arcp_trio.runtime.job.agents import AgentLoop
    from arcp_trio.runtime.job.job import Job

log = logging.getLogger(__name__)

_NO_ASYNCIO: Final = "no running event loop"
_NO_TRIO: Final = "must be called from async context"
_NOT_TRIOS: Final = "trio.run received unrecognized yield message"
"""The texts by which asyncio and Trio say that they are called in a place that is not theirs."""


def outcome_of_return(job: Job, result: JsonLike) -> Outcome:
    """Return the outcome of a job whose agent has returned `result`."""
    chunks = job.chunks
    if chunks is not None:
        fault = chunks.fault(result)
        if fault is not None:
            log.error("agent streamed wrongly", extra=job.facts | {"error": fault.message})
            return outcome.failed(fault)
        if job.sends_chunks:
            return outcome.streamed(chunks.id, chunks.size, chunks.summary)
        result = chunks.inline()
    try:
        encoded = dumps(result, max_depth=MAX_DEPTH - 2)  # it stands two levels below the frame
    except ValueError:
        log.exception("agent returned what is not JSON", extra=job.facts)
        return outcome.failed(InternalError("the agent returned what is not JSON"))
    if len(encoded) > job.most_payload_bytes:
        log.error("agent returned too much", extra=job.facts | {"bytes": len(encoded)})
        core = job.core
        too_big = limit_hit("frame_bytes_out", core.limits.frame_bytes_out)
        return outcome.failed(core.metrics.refused(too_big))
    return outcome.succeeded(encoded)


def outcome_of_error(job: Job, error: BaseException) -> Outcome:
    """Return the outcome of a job whose agent has raised `error`."""
    cause = unwrapped(error)
    known = cause if isinstance(cause, ArcpError) else job.explained(cause)
    told = None if known is None else outcome.raised(known, job.most_payload_bytes)
    if told is not None:
        return told
    # The text of any other exception may hold secrets: it goes into the log only (§12).
    log.error("agent failed", extra=job.facts, exc_info=error)
    missing = _wrong_loop(job.agent.loop, cause)
    if missing is None and cause.__cause__ is not None:  # of another process, or of a library
        missing = _wrong_loop(job.agent.loop, cause.__cause__)
    return outcome.failed(InternalError(missing or "the agent failed; the runtime's log says why"))


def _wrong_loop(loop: AgentLoop | None, error: BaseException) -> str | None:
    """Return what an agent should say of its loop, if the error is that of a missing one."""
    text = str(error)
    calls_asyncio = isinstance(error, RuntimeError) and text == _NO_ASYNCIO
    calls_asyncio |= isinstance(error, TypeError) and text.startswith(_NOT_TRIOS)
    if calls_asyncio and loop != "asyncio":
        how = "runs on Trio" if loop else "is a plain function"
        return f'the agent calls asyncio and {how}: make it async def with loop="asyncio"'
    if isinstance(error, RuntimeError) and text == _NO_TRIO and loop != "trio":
        how = "runs under asyncio" if loop else "is a plain function"
        return f'the agent calls Trio and {how}: make it async def without loop="asyncio"'
    return None


def not_the_agents(error: BaseException) -> BaseException | None:
    """Return the part of an exception that must go on: Ctrl-C, or a cancellation from outside."""
    if not trio.lowlevel.in_trio_task():
        return error  # the interpreter is closing the coroutine
    beyond: tuple[type[BaseException], ...] = (KeyboardInterrupt,)
    if trio.current_effective_deadline() == -math.inf:
        # If nothing around the agent is cancelled, it raised a `Cancelled` that it had kept.
        beyond = (*beyond, trio.Cancelled)
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).subgroup(beyond)
    return error if isinstance(error, beyond) else None
