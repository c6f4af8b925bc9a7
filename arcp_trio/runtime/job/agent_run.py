"""The run of a job's agent: what bounds it, what stops it, and the outcome that comes of it."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import attrs
import trio

from arcp_trio.groups import unwrapped
from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.job.outcome import Outcome
from arcp_trio.runtime.job.provisioning import explained
from arcp_trio.runtime.job.result_chunks import ResultChunks, recall_result
from arcp_trio.runtime.limits import STREAM_IT, limit_hit, too_large
from arcp_trio.wire.errors import ArcpError, InternalError, clip
from arcp_trio.wire.json import MAX_DEPTH, JsonLike, dumps

if TYPE_CHECKING:
    from arcp_trio.runtime.job.agent import AgentLoop
    from arcp_trio.runtime.job.job import Job

log = logging.getLogger(__name__)


_MOST_TOLD: Final = 1_000
"""Characters of an exception that a developer is told."""
_OF_ANOTHER_PROCESS: Final = ": Traceback (most recent call last):\n"
"""What the text of an exception has that stands for one of another process."""
_NO_ASYNCIO: Final = "no running event loop"
_NO_TRIO: Final = "must be called from async context"
_NOT_TRIOS: Final = "trio.run received unrecognized yield message"
"""The texts by which asyncio and Trio say that they are called in a place that is not theirs."""


@attrs.define(eq=False, kw_only=True)
class AgentRun:
    """The call of a job's agent, which is cancelled at the job's end and has a grace to stop in."""

    grace: float
    """Seconds that the agent has to stop in, once its job is to end."""
    max_runtime: float | None
    """Seconds that the agent may run for."""
    begun: bool = False
    """The agent was called."""
    deadline: float | None = None
    """The end of `max_runtime` on Trio's clock, from the agent's first call on."""
    encoding_seconds: float = 0
    """How long it has held the loop to write the result."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _grace_scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """The scope of the wait for the agent to stop."""
    _stopped: trio.Event = attrs.field(factory=trio.Event)

    def go_on_after(self, seconds: float) -> None:
        """Count the time since the agent was first called: its limit is that of all runs."""
        if self.max_runtime is not None:
            self.deadline = trio.current_time() + self.max_runtime - seconds

    async def run(self, job: Job) -> None:
        """Call the agent, and end the job if it runs for too long, or longer than its lease."""
        self.begun = True
        if self.max_runtime is None and job.authority.deadline is None:
            await self._call(job)
        else:
            await self._call_in_time(job)
        self._stopped.set()

    async def _call_in_time(self, job: Job) -> None:
        async with trio.open_nursery() as nursery:
            if self.max_runtime is not None:
                if self.deadline is None:
                    self.deadline = trio.current_time() + self.max_runtime
                end = partial(job.end, outcome.timed_out(self.max_runtime))
                nursery.start_soon(_at, self.deadline, end, name=f"time limit of {job.id}")
            if job.authority.deadline is not None:
                expire = partial(_at, job.authority.deadline, job.expire)
                nursery.start_soon(expire, name=f"end of the lease of {job.id}")
            await self._call(job)
            nursery.cancel_scope.cancel(reason="the agent has ended in time")

    async def _call(self, job: Job) -> None:
        """Call the agent; what it returns or raises only decides the job's outcome.

        No exception of an agent gets past here, not even SystemExit.
        """
        try:
            with self._scope, job.span.current():
                result = await job.jobs.call_agent(job)
                if job.chunks is None and job.memory.result:
                    job.chunks = ResultChunks("")
                    await recall_result(job, job.chunks)  # a step that is done has streamed it
                if not job.suspended:
                    job.memory.warn_of_the_rest(job.facts)
                    job.decide_if_late()  # the agent may have held the loop beyond its time
                    began = time.thread_time()
                    job.decide(_outcome_of_return(job, result))
                    self.encoding_seconds = time.thread_time() - began
        except BaseException as error:  # noqa: ASYNC103, BLE001 - see above
            rest = _not_the_agents(error)
            if rest is not None:
                raise rest from None  # noqa: ASYNC104
            if not job.suspended:
                job.decide_if_late()
                job.decide(_outcome_of_error(job, error))

    def timed_out(self, lease_ends: float | None = None) -> Outcome | None:
        """Return the time-out if the job ran for too long, and its lease has not ended before.

        The agent may have held the loop, or no runtime was there.
        """
        if self.deadline is None or trio.current_time() < self.deadline:
            return None
        if lease_ends is not None and lease_ends <= self.deadline:
            return None
        assert self.max_runtime is not None
        return outcome.timed_out(self.max_runtime)

    def cancel(self, reason: str) -> None:
        """Cancel the agent."""
        self._scope.cancel(reason=reason)

    def shorten_grace(self, seconds: float) -> None:
        """Give the agent at most `seconds` from now on to stop in."""
        self.grace = min(self.grace, seconds)
        self._bound_grace(seconds)

    async def stopped(self) -> bool:
        """Wait for the agent to stop; return False if it does not within its grace."""
        self._bound_grace(self.grace)
        with self._grace_scope:
            await self._stopped.wait()
            return True
        return False

    def _bound_grace(self, seconds: float) -> None:
        deadline = trio.current_time() + seconds
        self._grace_scope.deadline = min(self._grace_scope.deadline, deadline)


async def _at(deadline: float, act: Callable[[], None]) -> None:
    await trio.sleep_until(deadline)
    act()


def _outcome_of_return(job: Job, result: JsonLike) -> Outcome:
    """Return the outcome of a job whose agent has returned `result`."""
    chunks = job.chunks
    if chunks is not None:
        fault = chunks.fault(result)
        if fault is not None:
            log.error("agent streamed wrongly", extra=job.facts | {"error": fault.message})
            return outcome.failed(fault)
        if job.spec.sends_chunks:
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
        helps = too_large("the result", len(encoded), job.most_payload_bytes, STREAM_IT)
        too_big = limit_hit("frame_bytes_out", core.limits.frame_bytes_out, what_helps=helps)
        return outcome.failed(core.metrics.refused(too_big))
    return outcome.succeeded(encoded)


def _outcome_of_error(job: Job, error: BaseException) -> Outcome:
    """Return the outcome of a job whose agent has raised `error`."""
    cause = unwrapped(error)
    known = cause if isinstance(cause, ArcpError) else explained(job, cause)
    told = None if known is None else outcome.raised(known, job.most_payload_bytes)
    if told is not None:
        return told
    # The text of any other exception may hold secrets: others read it in the log only (§12).
    log.error("agent failed", extra=job.facts, exc_info=error)
    said = _wrong_loop(job.agent.loop, cause)
    if said is None and cause.__cause__ is not None:  # of another process, or of a library
        said = _wrong_loop(job.agent.loop, cause.__cause__)
    if said is None and job.principal in job.core.policy.developers:
        said = f"the agent failed: {_last_line(cause)}; the runtime's log has the traceback"
    return outcome.failed(InternalError(said or "the agent failed; the runtime's log says why"))


def _last_line(error: BaseException) -> str:
    """Return the type and the text of an exception, as a traceback ends with them."""
    text = "".join(traceback.format_exception_only(error)).strip()
    if _OF_ANOTHER_PROCESS in text:
        text = text.rpartition("\n  ")[2].partition("\n")[2] or text
    return clip(text, _MOST_TOLD).encode(errors="backslashreplace").decode()


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


def _not_the_agents(error: BaseException) -> BaseException | None:
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
