"""The pool: the zygote, the workers that wait for a job, and the jobs that wait for a worker."""

from __future__ import annotations

import json
import logging
import math
import signal
import socket
import subprocess
import sys
from array import array
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from arcp_trio.runtime.workers.messages import SPENT
from arcp_trio.runtime.workers.wire import Wire, WorkerLost
from arcp_trio.runtime.workers.worker_job import WorkerJob, result_of_worker
from arcp_trio.runtime.workers.zygote import BOOT, MOST_REQUEST, ZygoteSettings
from arcp_trio.wire.errors import InternalError
from arcp_trio.wire.json import JsonValue

if TYPE_CHECKING:
    from arcp_trio.runtime.job.agents import Agents
    from arcp_trio.runtime.job.desk import Desk
    from arcp_trio.runtime.workers.messages import WorkerFrame
    from arcp_trio.runtime.workers.settings import Workers

log = logging.getLogger(__name__)

START_SECONDS: Final = 60.0
"""How long the zygote may take to import the agents."""
END_SECONDS: Final = 1.0
"""How long the zygote may take to end, at the runtime's end."""
NO_WORKERS: Final = "the agent's process cannot be started"
PAUSE_SECONDS: Final = 1.0
"""The pause before another zygote is started, after one has ended."""


@attrs.define(eq=False)
class _Worker:
    """A worker process."""

    process_id: int
    wire: Wire
    zygote: int
    """The number of the zygote that has forked it."""
    jobs: int = 0


@attrs.define(eq=False)
class _Waiting:
    """A job that waits for a worker."""

    principal: str
    given: trio.Event = attrs.field(factory=trio.Event)
    worker: _Worker | None = None


class WorkerPool:
    """Runs agents in worker processes, one job at a time in each."""

    def __init__(self, settings: Workers, agents: Agents) -> None:
        self._settings = settings
        self._agents = agents
        self._wanted = trio.Event()
        self._idle: deque[_Worker] = deque()
        self._waiting: list[_Waiting] = []
        self._busy: Counter[str] = Counter()
        """How many workers are busy for each principal."""
        self._spent, self._to_replace = trio.open_memory_channel[_Worker](math.inf)
        """Workers to end and to replace: no more than there are."""
        self._zygote = 0
        """The number of the zygote, or of the next one."""
        self._broken = False
        """Whether there is no zygote, although there was one."""

    # -- jobs

    async def run_agent(self, desk: Desk) -> JsonValue:
        """Have a worker do a job, and return what its agent returns.

        Cancellation: is told to the agent; the worker is ended if the job has ended by then.

        Raises:
            InternalError: there is no worker, or it ended before the job.
        """
        self._wanted.set()
        worker = await self._take(desk.job.principal)
        frame: WorkerFrame | None = None
        try:
            frame = await _converse(desk, WorkerJob(desk, worker.wire))
        finally:
            self._busy[desk.job.principal] -= 1
            self._put_back(worker, whole=frame is not None and frame.name != SPENT)
        await trio.lowlevel.checkpoint_if_cancelled()
        if frame is None:
            raise InternalError("the agent's process ended")
        return result_of_worker(frame)

    async def _take(self, principal: str) -> _Worker:
        if self._broken:
            raise InternalError(NO_WORKERS)
        waiting = _Waiting(principal)
        self._waiting.append(waiting)
        self._match()
        try:
            await waiting.given.wait()
        except BaseException:
            if waiting.worker is not None:
                self._busy[principal] -= 1
                self._put_back(waiting.worker, whole=True)
            else:
                self._waiting.remove(waiting)
            raise
        given = waiting.worker
        if given is None:
            raise InternalError(NO_WORKERS)
        return given

    def _match(self) -> None:
        """Give idle workers to waiting jobs: first of the principal that has the fewest."""
        while self._idle and self._waiting:
            waiting = min(self._waiting, key=lambda each: self._busy[each.principal])
            self._waiting.remove(waiting)
            self._busy[waiting.principal] += 1
            waiting.worker = self._idle.popleft()
            waiting.given.set()

    def _put_back(self, worker: _Worker, *, whole: bool) -> None:
        """Take a worker back; one that is spent or not whole is ended and replaced."""
        worker.jobs += 1
        if worker.zygote != self._zygote:
            worker.wire.close()  # it ends with its zygote, and was replaced with it
        elif whole and worker.jobs < self._settings.jobs_per_worker:
            self._idle.append(worker)
            self._match()
        else:
            worker.wire.close()
            self._spent.send_nowait(worker)

    # -- processes

    async def run(self) -> None:
        """Keep workers ready, from the first moment that there is an agent for them."""
        if not self._agents.modules():
            await self._wanted.wait()
        while True:
            try:
                await self._run_zygote()
            except* (OSError, ValueError, trio.TooSlowError, WorkerLost) as error:
                facts = {"error": str(error.exceptions[0])}
                log.error("worker processes lost", extra=facts)  # noqa: TRY400
            finally:
                self._refuse()
            await trio.sleep(PAUSE_SECONDS)
            self._broken = False

    def _refuse(self) -> None:
        """Drop the workers of a zygote that has ended, and refuse the jobs that wait."""
        self._broken = True
        self._zygote += 1
        for worker in self._idle:
            worker.wire.close()
        self._idle.clear()
        for waiting in self._waiting:
            waiting.given.set()
        self._waiting.clear()

    async def _run_zygote(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with trio.socket.from_stdlib_socket(ours) as control:
            with theirs:
                process = await self._start_zygote(theirs)
            try:
                await self._supply(control)
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

    async def _supply(self, control: trio.socket.SocketType) -> None:
        """Have the zygote import the agents, then fork and end workers."""
        settings = self._settings
        told = ZygoteSettings(
            modules=sorted(self._agents.modules()),
            user=settings.user,
            memory_bytes=settings.memory_bytes,
            descriptors=settings.descriptors,
        )
        with trio.fail_after(START_SECONDS):
            await control.send(json.dumps(told).encode())
            await _answer(control)
        log.info("worker processes ready", extra={"workers": settings.count})
        for _ in range(settings.count):
            await self._fork(control)
        async for worker in self._to_replace:
            if worker.zygote == self._zygote:
                await _end(control, worker)
                await self._fork(control)

    async def _fork(self, control: trio.socket.SocketType) -> None:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [theirs.fileno()]))]
                await control.sendmsg([b"{}"], rights)
                child = (await _answer(control))["child"]
        except BaseException:
            ours.close()
            raise
        self._idle.append(_Worker(child, Wire(trio.socket.from_stdlib_socket(ours)), self._zygote))
        self._match()


async def _end(control: trio.socket.SocketType, worker: _Worker) -> None:
    await control.send(json.dumps({"end": worker.process_id}).encode())
    status = (await _answer(control)).get("status")
    facts = {"process_id": worker.process_id, "jobs": worker.jobs, "exit_status": status}
    log.info("worker ended", extra=facts)


async def _converse(desk: Desk, worker_job: WorkerJob) -> WorkerFrame | None:
    """Have a worker do a job; None if the worker was lost, or has to be ended with the job."""
    frame: WorkerFrame | None = None

    ended = False

    async def mind_cancellation() -> None:
        try:
            await trio.sleep_forever()
        finally:
            if not ended:
                nursery.start_soon(worker_job.cancel, name="cancellation of a worker")

    async def end_once_over() -> None:
        await desk.job.over.wait()
        life.cancel(reason="the job is over")

    async with trio.open_nursery() as around:
        with trio.CancelScope(shield=True) as life:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(end_once_over, name="end of a worker's job")
                around.start_soon(mind_cancellation, name="cancellation of a worker")
                try:
                    frame = await worker_job.run()
                except* WorkerLost as lost:
                    facts = {"error": str(lost.exceptions[0])}
                    log.error("worker lost", extra=desk.job.facts | facts)  # noqa: TRY400
                finally:
                    ended = True
                nursery.cancel_scope.cancel(reason="the worker has ended the job")
        around.cancel_scope.cancel(reason="the worker has ended the job")
    return frame


async def _answer(control: trio.socket.SocketType) -> dict[str, Any]:
    data = await control.recv(MOST_REQUEST)
    if not data:
        raise WorkerLost("the zygote ended")
    answer: dict[str, Any] = json.loads(data)
    return answer
