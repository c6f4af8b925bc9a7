"""The pool: the zygote, and the runs of jobs in its workers."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.durable.runs import begin_next_run
from arcp_trio.runtime.wake import Wake
from arcp_trio.runtime.workers.control import ZygoteControl
from arcp_trio.runtime.workers.messages import SPENT
from arcp_trio.runtime.workers.places import WorkerPlaces
from arcp_trio.runtime.workers.processes import WorkerProcesses
from arcp_trio.runtime.workers.wire import WorkerLost
from arcp_trio.runtime.workers.worker_job import WorkerJob, result_of_worker
from arcp_trio.runtime.workers.zygote import BOOT, ZygoteSettings
from arcp_trio.wire.errors import InternalError
from arcp_trio.wire.json import JsonValue

if TYPE_CHECKING:
    from arcp_trio.runtime.job.agents import Agents
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.workers.messages import WorkerFrame
    from arcp_trio.runtime.workers.settings import Workers

log = logging.getLogger(__name__)

START_SECONDS: Final = 60.0
"""How long the zygote may take to import the agents."""
END_SECONDS: Final = 1.0
"""How long the zygote may take to end, at the runtime's end."""
PAUSE_SECONDS: Final = 1.0
"""The pause after the death of a zygote or a worker, before there is another one."""


class WorkerPool:
    """Runs agents in worker processes, one job at a time in each."""

    def __init__(self, settings: Workers, agents: Agents) -> None:
        self._settings = settings
        self._agents = agents
        self._wanted = trio.Event()
        self._places = WorkerPlaces(settings.count)
        self._processes = WorkerProcesses(self._places, settings.jobs_per_worker)
        """The workers of the present zygote, or of the first one while it is not started yet.

        After a zygote has ended they are closed, and replaced when the next one is started.
        """
        self._replaced = Wake()

    async def run_agent(self, desk: Desk) -> JsonValue:
        """Have a worker do a job, and return what its agent returns.

        The agent of a durable job is called again if its worker ends before the job.

        Cancellation: is told to the agent; the worker is ended if the job has ended by then.

        Raises:
            InternalError: there is no worker, or it ended before the job, or too often.
        """
        self._wanted.set()
        job = desk.job
        while (frame := await self._run_in_worker(desk)) is None:
            if not job.memory.durable or job.over.is_set():
                raise InternalError("the agent's process ended")
            await begin_next_run(job)
            await self._pause()
            desk = Desk(job)
        return result_of_worker(frame)

    async def _pause(self) -> None:
        """Make a pause after a worker's death, until there is a zygote: it may have died, too."""
        await trio.sleep(PAUSE_SECONDS)
        while self._processes.closed:
            await self._replaced.wait()

    async def _run_in_worker(self, desk: Desk) -> WorkerFrame | None:
        """Have a worker do a job; return how it ended it, or None if it ended before the job."""
        with self._places.stay(desk.job) as stay:
            await stay.given.wait()
            processes = self._processes
            worker = await processes.take()
            worker_run = _WorkerRun(desk, WorkerJob(desk, worker.wire, stay))
            try:
                await worker_run.run()
            finally:
                frame = worker_run.end
                processes.put_back(worker, whole=frame is not None and frame.name != SPENT)
        await trio.lowlevel.checkpoint_if_cancelled()
        return frame

    def lend_place_of(self, job: Job) -> None:
        """Let another job run while this one waits for people."""
        self._places.lend_place_of(job)

    async def run(self) -> None:
        """Keep workers ready, from the first moment that there is an agent for them."""
        if not self._agents.modules():
            await self._wanted.wait()
        while True:
            try:
                await self._run_zygote()
            except* (OSError, ValueError, WorkerLost) as error:
                facts = {"error": str(error.exceptions[0])}
                log.error("worker processes lost", extra=facts)  # noqa: TRY400
            finally:
                self._processes.close()
            await trio.sleep(PAUSE_SECONDS)
            self._processes = WorkerProcesses(self._places, self._settings.jobs_per_worker)
            self._replaced.set()

    async def _run_zygote(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with trio.socket.from_stdlib_socket(ours) as control:
            with theirs:
                process = await self._start_zygote(theirs)
            try:
                await self._supply(ZygoteControl(control))
            finally:
                control.close()  # the zygote ends its workers, and itself
                with trio.CancelScope(shield=True):
                    with trio.move_on_after(END_SECONDS):
                        await process.wait()
                    if process.returncode is None:
                        process.send_signal(signal.SIGKILL)
                        with trio.move_on_after(END_SECONDS):
                            await process.wait()

    async def _start_zygote(self, theirs: socket.socket) -> trio.Process:
        return await trio.lowlevel.open_process(
            [sys.executable, "-I", "-c", BOOT, json.dumps(sys.path), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__.fileno() if sys.__stderr__ else subprocess.DEVNULL,
            env=dict(self._settings.environment),
            start_new_session=True,
        )

    async def _supply(self, control: ZygoteControl) -> None:
        """Have the zygote import the agents, then fork and end workers."""
        settings = self._settings
        told = ZygoteSettings(
            modules=sorted(self._agents.modules()),
            user=settings.user,
            memory_bytes=settings.memory_bytes,
            descriptors=settings.descriptors,
        )
        await control.answer_to(told, within=START_SECONDS)
        log.info("worker processes ready", extra={"workers": settings.count})
        await self._processes.supply(control)


@attrs.define(eq=False)
class _WorkerRun:
    """The run of a job in a worker, which a cancelled job has until it is over."""

    _desk: Desk
    _job: WorkerJob
    end: WorkerFrame | None = None
    """The frame by which the worker has ended the job, if all that was sent to it is whole."""
    _ended: bool = False

    async def run(self) -> None:
        """Have the worker do the job, or leave it if the worker is lost, or the job is over."""
        async with trio.open_nursery() as around:
            with trio.CancelScope(shield=True) as life:
                async with trio.open_nursery() as beside:
                    beside.start_soon(self._end_once_over, life, name="end of a worker's job")
                    async with trio.open_nursery() as telling:
                        # Once the worker has ended the job, it tells the worker nothing.
                        mind = partial(self._mind_cancellation, telling)
                        around.start_soon(mind, name="cancellation of a worker")
                        frame = await self._frame()
                    self.end = frame
                    beside.cancel_scope.cancel(reason="the worker has ended the job")
            around.cancel_scope.cancel(reason="the worker has ended the job")

    async def _frame(self) -> WorkerFrame | None:
        try:
            return await self._job.run()
        except* WorkerLost as lost:
            facts = {"error": str(lost.exceptions[0])}
            log.error("worker lost", extra=self._desk.job.facts | facts)  # noqa: TRY400
        finally:
            self._desk.job.go_on()
            self._ended = True
        return None

    async def _mind_cancellation(self, telling: trio.Nursery) -> None:
        try:
            await trio.sleep_forever()
        finally:
            if not self._ended:
                telling.start_soon(self._job.cancel, name="cancellation of a worker")

    async def _end_once_over(self, life: trio.CancelScope) -> None:
        await self._desk.job.over.wait()
        life.cancel(reason="the job is over")
