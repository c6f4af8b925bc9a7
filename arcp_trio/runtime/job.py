"""A job: an agent at work, owned by the runtime and by nothing that can be lost (§7)."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, cast

import attrs
import trio

from arcp_trio.runtime import outcome
from arcp_trio.runtime.agents import Agent
from arcp_trio.runtime.context import JobContext
from arcp_trio.runtime.groups import unwrapped
from arcp_trio.runtime.journal import Journal
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.outcome import Outcome
from arcp_trio.store.records import Entry, Status
from arcp_trio.store.writes import AppendJournal, FinishJob, StartJob
from arcp_trio.wire import envelope, events
from arcp_trio.wire.errors import ArcpError, InternalError, error_from_payload
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import MAX_DEPTH, Json, dumps
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.watch import Watch

log = logging.getLogger(__name__)

EMITS_PER_CHECKPOINT = 64
"""An emit gives way to other tasks this often; else it only looks for cancellation."""

FRAME_ALLOWANCE = 512
"""Bytes of a frame around its payload, at most."""


@attrs.define(eq=False, kw_only=True)
class Job:
    """Lives in the runtime's nursery; knows its watchers by session id, and no connection."""

    core: Core
    id: str
    agent: Agent
    input: Json
    principal: str
    session_id: str
    """The session that submitted it first."""
    trace_id: str
    max_runtime: float | None
    grace: float
    submitters: set[str]
    """Sessions that may cancel it (§7.4)."""
    journal: Journal
    status: Status = Status.PENDING
    deadline: float | None = None
    """On Trio's clock, once it runs."""
    watches: dict[str, Watch] = attrs.field(factory=dict[str, "Watch"])
    """The awake sessions that watch it, by their ids."""
    _outcome: Outcome | None = None
    sealed: bool = False
    """Its terminal is in the journal: nothing with its id follows."""
    _emits: int = 0
    _tails: envelope.JobTails = attrs.field(init=False)
    _winding_up: bool = False
    _agent_gone: trio.Event = attrs.field(factory=trio.Event)
    _agent_scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _grace_scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _last_scope: trio.CancelScope = attrs.field(factory=lambda: trio.CancelScope(shield=True))

    def __attrs_post_init__(self) -> None:
        self._tails = envelope.JobTails(self.id, self.trace_id)

    # -- running

    async def run(self) -> None:
        """Run the agent, then say how the job ended, unless `cut_off` had to say it before.

        An end that was decided before the start leaves the agent nothing to do.
        """
        if self._outcome is None:
            await self._work()
        self._agent_gone.set()
        await self._finish()

    async def _work(self) -> None:
        self.status = Status.RUNNING
        self.core.store.put(StartJob(self.id))
        if self.max_runtime is None:
            await self._run_agent()
        else:
            self.deadline = trio.current_time() + self.max_runtime
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._time_out, name=f"time limit of {self.id}")
                await self._run_agent()
                nursery.cancel_scope.cancel(reason="the agent has ended in time")

    async def _run_agent(self) -> None:
        try:
            with self._agent_scope:
                result = await self.agent.function(JobContext(self))
                self.decide(self._returned(result))
        except BaseException as error:  # noqa: ASYNC103, BLE001 - the fence round an agent
            # Its fault is its own, SystemExit included.
            rest = _not_the_agents(error)
            if rest is not None:
                raise rest from None  # noqa: ASYNC104
            self.decide(self._raised(error))

    async def _time_out(self) -> None:
        assert self.deadline is not None
        assert self.max_runtime is not None
        await trio.sleep_until(self.deadline)
        self.end(outcome.timed_out(self.max_runtime))

    def _returned(self, result: Json) -> Outcome:
        try:
            encoded = dumps(result, max_depth=MAX_DEPTH - 2)  # it stands two levels below the frame
        except ValueError:
            log.exception("agent %s of %s failed", self.agent.ref, self.id)
            return outcome.failed(InternalError("the agent returned what is not JSON"))
        if len(encoded) > self._most_bytes:
            log.error("agent %s of %s returned %d bytes", self.agent.ref, self.id, len(encoded))
            return outcome.failed(limit_hit("frame_bytes_out", self.core.limits.frame_bytes_out))
        return outcome.succeeded(encoded)

    def _raised(self, error: BaseException) -> Outcome:
        cause = unwrapped(error)
        its_own = outcome.raised(cause, self._most_bytes) if isinstance(cause, ArcpError) else None
        if its_own is not None:
            return its_own
        # The text of an exception may hold secrets: it stays here (§12).
        log.error("agent %s of %s failed", self.agent.ref, self.id, exc_info=error)
        return outcome.failed(InternalError("the agent failed"))

    @property
    def _most_bytes(self) -> int:
        return self.core.limits.frame_bytes_out - FRAME_ALLOWANCE

    # -- ending

    @property
    def outcome(self) -> Outcome | None:
        """How the job ends, from the moment that is decided."""
        return self._outcome

    def decide(self, outcome: Outcome) -> bool:
        """Decide how the job ends, unless that is decided already. It goes on until `wind_up`."""
        if self._outcome is None:
            self._outcome = outcome
            return True
        return False

    def wind_up(self) -> None:
        """Have the agent stopped, now that the end is decided, and cut off if it does not stop."""
        self._agent_scope.cancel(reason="the job is ending")
        if not self._winding_up:
            self._winding_up = True
            self.core.jobs.mind_end(self)

    def end(self, outcome: Outcome) -> bool:
        """Decide, and wind up."""
        decided = self.decide(outcome)
        self.wind_up()
        return decided

    def shorten_grace(self, seconds: float) -> None:
        """An agent gets at most this from now on."""
        self.grace = min(self.grace, seconds)
        self._grace_scope.deadline = min(self._grace_scope.deadline, trio.current_time() + seconds)

    async def cut_off(self) -> None:
        """Wait for the agent to stop; after its grace say the end without it."""
        self._grace_scope.deadline = min(
            self._grace_scope.deadline, trio.current_time() + self.grace
        )
        with self._grace_scope:
            await self._agent_gone.wait()
            return
        log.warning("agent %s of %s does not stop: cut off", self.agent.ref, self.id)
        await self._finish()

    def abandon(self) -> None:
        """Wait no longer for a store that does not take the job's end."""
        self._last_scope.cancel(reason="the runtime is over")

    async def _finish(self) -> None:
        """Say the terminal: from here on nothing with this job's id follows."""
        if self.sealed:
            return
        outcome = self._outcome
        assert outcome is not None
        self.sealed = True
        now = self.core.clock.now()
        entry = self._entry(outcome.type, outcome.payload(rfc3339(now)), terminal=True)
        self.status = outcome.status
        group = self.core.store.put(FinishJob(self.id, outcome.status, now, entry))
        self._hint(entry)
        with self._last_scope:
            await group.committed()
            self.core.jobs.ended(self)

    # -- emitting

    async def emit(self, kind: str, body: Mapping[str, Json]) -> None:
        """Add an event to the journal in one step; then give way, or wait for the store."""
        payload = events.encode_event(kind, body, rfc3339(self.core.clock.now()))
        if len(payload) > self._most_bytes:
            raise limit_hit("frame_bytes_out", self.core.limits.frame_bytes_out)
        if self.sealed:
            raise self._ended()
        entry = self._entry("job.event", payload, feature=events.feature_of(kind))
        self.core.store.put(AppendJournal(self.id, entry))
        self._hint(entry)
        await self._give_way()

    def _ended(self) -> ArcpError:
        """A fresh error each time: the agent may raise it, catch it and change it as it likes."""
        assert self._outcome is not None
        error = self._outcome.error
        if error is None:
            return InternalError("the job has ended")
        return error_from_payload(error.payload())

    def _entry(
        self,
        message_type: str,
        payload: bytes,
        *,
        feature: str | None = None,
        terminal: bool = False,
    ) -> Entry:
        tail = self._tails.tail(message_type, payload, id=new_id())
        entry = Entry(self.journal.length, self.core.jobs.next_ordinal(), tail, feature, terminal)
        self.journal.count(entry)
        return entry

    def _hint(self, entry: Entry) -> None:
        for watch in self.watches.values():
            watch.session.hint(watch, entry)

    async def _give_way(self) -> None:
        self._emits += 1
        if self.journal.over:
            await self._fit_journal()
        if self.core.store.full:
            await self.core.store.room()
        elif self._emits % EMITS_PER_CHECKPOINT == 0:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()

    async def _fit_journal(self) -> None:
        """Wait for the session that submitted the job, while it is attached; for nobody else."""
        while True:
            watch = self.watches.get(self.session_id)
            attached = watch is not None and watch.session.tail is not None
            self.journal.trim(watch.cursor if watch is not None and attached else None)
            if not (attached and self.journal.over_by_a_segment):
                return
            await self.journal.reader()


def _not_the_agents(error: BaseException) -> BaseException | None:
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
