"""A runtime and a few clients that carry out a schedule, and the model of what they must see."""

from __future__ import annotations

import logging
from functools import partial
from typing import cast

import trio
from trio.testing import MockClock

from arcp_trio import Agents, ArcpError, JobContext, JobError, Limits
from arcp_trio.testing.peer import Peer
from arcp_trio.testing.recorder import WireRecorder
from tests.ordering import programs
from tests.ordering.clients import WINDOW_SECONDS, Client
from tests.ordering.lines import Line, line
from tests.ordering.programs import Burst, Emitted, Program, Script, Step
from tests.stage import make_runtime

HEARTBEAT_SECONDS = 20


def carry_out(program: Program) -> None:
    """Run a schedule in virtual time, let every client catch up, and check what all have seen.

    Raises:
        AssertionError: a client has seen what it must not see, or missed something.
    """
    errors = _ErrorLog()
    logging.getLogger().addHandler(errors)
    try:
        trio.run(World(program).live, clock=MockClock(autojump_threshold=0))
    except BaseExceptionGroup as group:
        raise _first(group) from None
    finally:
        logging.getLogger().removeHandler(errors)
    assert not errors.messages, errors.messages


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _ErrorLog(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


class World:
    """One runtime and its clients."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.scripts: list[Script] = []
        self.job_ids: dict[int, str] = {}
        """The ids of the jobs that have begun, by script."""
        self.emitted: list[Emitted] = []
        """The events of all jobs, in the order of emission."""
        self.cancelled: set[int] = set()
        bounds = program.bounds
        self.runtime = make_runtime(
            Agents(),
            limits=Limits(
                outbox_items=bounds.outbox_items,
                inbox_items=bounds.inbox_items,
                tail_frames=bounds.tail_frames,
                tail_bytes=bounds.tail_bytes,
                resume_window_seconds=WINDOW_SECONDS,
                heartbeat_seconds=HEARTBEAT_SECONDS,
                cancel_grace_seconds=1,
            ),
        )
        self.runtime.agent("scripted")(self._play)
        self.recorder = WireRecorder()
        self.clients = [Client(self, features) for features in program.features]

    async def live(self) -> None:
        """Carry the schedule out, let clients catch up, and check."""
        async with self.runtime:
            for client in self.clients:
                await client.begin()
            for step in self._program.steps:
                await self._take(step)
            async with trio.open_nursery() as nursery:
                for client in self.clients:
                    nursery.start_soon(client.settle)
            for client in self.clients:
                client.check()

    def connect(self) -> tuple[Peer, Line]:
        """Open a connection."""
        near, far = line(self._program.bounds.line_frames)
        deadline = trio.current_time() + 10
        self.runtime.start_connection(
            partial(self.runtime.attend, far, deadline=deadline), "connection"
        )
        return Peer(near, cast("trio.abc.Stream", near), self.recorder), near

    def submitter(self, tag: int) -> str:
        """Return the id of the session that submitted a job."""
        return next(client.submitted[tag] for client in self.clients if tag in client.submitted)

    # -- the agent

    async def _play(self, job: JobContext) -> None:
        tag = job.input
        assert isinstance(tag, int)
        self.job_ids[tag] = job.id
        script = self.scripts[tag]
        try:
            for burst in script.bursts:
                await self._emit(job, tag, burst)
        except trio.Cancelled:
            if script.grace:
                with trio.CancelScope(shield=True):
                    await self._emit(job, tag, Burst(2, script.grace, progress=False))
            raise
        if script.fails:
            raise JobError("as told")

    async def _emit(self, job: JobContext, tag: int, burst: Burst) -> None:
        for n in range(burst.events):
            progress = burst.progress and n % 2 == 1
            place = sum(emitted.tag == tag for emitted in self.emitted)
            self.emitted.append(Emitted(tag, place, progress))
            try:
                if progress:
                    await job.progress(place)
                else:
                    await job.log(str(place))
            except ArcpError:  # the job has ended: nothing was emitted
                self.emitted.pop()
                raise
        await trio.sleep(burst.pause)

    # -- steps

    async def _take(self, step: Step) -> None:
        match step:
            case programs.Pause(seconds):
                await trio.sleep(seconds)
            case programs.Yield(times):
                for _ in range(times):
                    await trio.lowlevel.checkpoint()
            case _:
                await self.clients[step.slot].take(step)
