"""The run of a job's agent: what bounds it, what stops it, and the outcome that comes of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.job.agent_outcome import not_the_agents, outcome_of_error, outcome_of_return

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job


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
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _grace_scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """The scope of the wait for the agent to stop."""
    _stopped: trio.Event = attrs.field(factory=trio.Event)

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
                if not job.suspended:
                    job.memory.warn_of_the_rest(job.facts)
                    job.decide(self.timed_out() or outcome_of_return(job, result))
        except BaseException as error:  # noqa: ASYNC103, BLE001 - see above
            rest = not_the_agents(error)
            if rest is not None:
                raise rest from None  # noqa: ASYNC104
            if not job.suspended:
                job.decide(self.timed_out() or outcome_of_error(job, error))

    def timed_out(self, lease_ends: float | None = None) -> outcome.Outcome | None:
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
