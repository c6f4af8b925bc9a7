"""Agents in threads: plain functions, and coroutines under asyncio (`loop="asyncio"`)."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.job.asyncio_context import AsyncioContext
from arcp_trio.runtime.job.blocking import BlockingContext
from arcp_trio.runtime.job.job_view import facts_for_agent
from arcp_trio.runtime.job.loop_carrier import LoopCarrier
from arcp_trio.runtime.job.outside import AsyncioWork, BlockingWork, OutsideWork
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.wire.json import JsonLike

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.desk import Desk

log = logging.getLogger(__name__)


class AgentThreads:
    """Runs agents in threads, and counts the threads until they end.

    Python cannot end a thread. One that does not stop within its job's grace is abandoned: the job
    ends without it, and the thread counts against its principal's limit for as long as it runs.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._threads: Counter[str] = Counter()
        """How many threads each principal has."""
        self.abandoned = 0
        """How many threads run on after their jobs have ended."""

    @property
    def total(self) -> int:
        """How many threads there are."""
        return self._threads.total()

    async def run(self, desk: Desk) -> JsonLike:
        """Call a job's agent in a thread, and return what it returns.

        Cancellation: is told to the agent; the thread is waited for until the job has ended.

        Raises:
            InternalError: a limit is reached.
        """
        if not desk.job.revived:  # what it has done must not be lost to jobs that came later
            self._refuse_if_full(desk.job.principal)
        carrier = LoopCarrier(desk)
        thread = _Thread(self, desk.job.principal, _work(desk, carrier))
        async with trio.open_nursery() as around:
            around.start_soon(_mind_cancellation, thread.work, name="cancellation of a thread")
            with trio.CancelScope(shield=True) as life:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(carrier.carry, name="calls of a thread")
                    nursery.start_soon(_end_once_over, desk, life, name="end of a thread")
                    await thread.run()
                    nursery.cancel_scope.cancel(reason="the thread has ended")
            if life.cancelled_caught:
                log.warning("agent's thread abandoned", extra=desk.job.facts)
            around.cancel_scope.cancel(reason="the thread is over")
        await trio.lowlevel.checkpoint_if_cancelled()
        return thread.result()

    def _refuse_if_full(self, principal: str) -> None:
        limits, metrics = self._core.limits, self._core.metrics
        if self.total >= limits.agent_threads:
            raise metrics.refused(limit_hit("agent_threads", limits.agent_threads))
        if self._threads[principal] >= limits.agent_threads_per_principal:
            most = limits.agent_threads_per_principal
            raise metrics.refused(limit_hit("agent_threads_per_principal", most))

    def begun(self, principal: str) -> None:
        """Count a thread."""
        self._threads[principal] += 1

    def ended(self, principal: str) -> None:
        """Stop counting a thread."""
        self._threads[principal] -= 1
        if not self._threads[principal]:
            del self._threads[principal]


@attrs.define(eq=False)
class _Thread:
    """One agent's thread, which may outlast its job and the runtime."""

    _threads: AgentThreads
    _principal: str
    work: OutsideWork
    _result: JsonLike = None
    _error: BaseException | None = None
    _abandoned: bool = False

    async def run(self) -> None:
        """Run the thread to its end, or abandon it if cancelled."""
        token = trio.lowlevel.current_trio_token()

        def body() -> None:
            try:
                self._result = self.work.run()
            except BaseException as error:  # noqa: ASYNC103, BLE001 - raised again by `result`
                self._error = error
            finally:
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(self._has_ended)

        await trio.lowlevel.checkpoint_if_cancelled()  # from here on the thread does start
        self._threads.begun(self._principal)
        try:
            # Threads are counted by principal; Trio's own limit is for the runtime's threads.
            await trio.to_thread.run_sync(
                body, abandon_on_cancel=True, limiter=trio.CapacityLimiter(math.inf)
            )
        except RuntimeError:
            self._threads.ended(self._principal)  # the system has no thread for it
            raise
        except trio.Cancelled:
            self._abandoned = True
            self._threads.abandoned += 1
            raise

    def _has_ended(self) -> None:
        self._threads.ended(self._principal)
        if self._abandoned:
            self._threads.abandoned -= 1

    def result(self) -> JsonLike:
        """Return what the agent returned, or raise what it raised."""
        if self._error is None:
            return self._result
        if isinstance(self._error, KeyboardInterrupt):  # not Ctrl-C, which the main thread gets
            raise RuntimeError("the agent raised it") from self._error  # noqa: TRY004
        raise self._error


def _work(desk: Desk, carrier: LoopCarrier) -> OutsideWork:
    job = desk.job
    agent, facts, deadline = job.agent, facts_for_agent(job), job.agent_run.deadline
    if deadline is not None:
        deadline += time.monotonic() - trio.current_time()
    if agent.loop == "asyncio":
        return AsyncioWork(agent.function, AsyncioContext(carrier, facts, deadline))
    context = BlockingContext(carrier, facts, deadline)
    return BlockingWork(agent.function, context, carrier.cancel)


async def _mind_cancellation(work: OutsideWork) -> None:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        work.cancel()
        raise


async def _end_once_over(desk: Desk, life: trio.CancelScope) -> None:
    await desk.job.over.wait()
    life.cancel(reason="the job is over")
