"""The workers of one zygote: forked as they are needed, handed to jobs, and ended when spent.

An idle worker gives a sign of life before it gets a job: an earlier job may have left it standing
still. How long a machine takes for that is not known beforehand, so the zygote is asked, too.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from arcp_trio.runtime.workers.control import ForkRefused, Worker, ZygoteControl
from arcp_trio.runtime.workers.places import WorkerPlaces
from arcp_trio.runtime.workers.wire import WorkerLost
from arcp_trio.wire.errors import InternalError

log = logging.getLogger(__name__)

NO_WORKERS: Final = "the agent's process cannot be started"

SILENCE_SECONDS: Final = 2.0
"""How long a job waits for the sign of life of one worker before it asks another one."""
ZYGOTES_TIMES: Final = 10
"""A silent worker has this many times as long as the zygote needs to answer; then it is ended."""
PAUSE_SECONDS: Final = 1.0
"""The pause before another fork, after one was refused."""

_ENDED_AS_IT_BEGAN: Final = (
    "it ended as it began, and standard error says why; more memory, or processes, may help"
)


class WorkerProcesses:
    """The workers of one zygote: as many as the places need."""

    def __init__(self, places: WorkerPlaces, jobs_per_worker: int) -> None:
        self._places = places
        self._jobs_per_worker = jobs_per_worker
        self._alive: set[Worker] = set()
        """Workers that have a job, or are idle: no more than the places need, but for a moment."""
        self._spent: deque[Worker] = deque()
        """Workers to end."""
        self._doubted: deque[Worker] = deque()
        """Workers that have given no sign of life, so far."""
        self._to_idle, self._idle = trio.open_memory_channel[Worker | InternalError](math.inf)
        """Workers without a job. An error is sent only while a job waits, which it ends."""
        self._refused: str | None = None
        """Why there cannot be another worker at the moment."""
        self._again_at = -math.inf
        """When there may be another fork."""
        self.closed = False
        """Whether their zygote has ended."""

    async def take(self) -> Worker:
        """Return a worker that lives, which is the caller's until it is put back.

        Raises:
            InternalError: the zygote has ended, or cannot fork another worker.
        """
        while True:
            try:
                worker = await self._idle.receive()
            except trio.EndOfChannel:
                raise InternalError(NO_WORKERS) from None
            if isinstance(worker, InternalError):
                raise worker
            if await self._lives(worker):
                return worker

    def put_back(self, worker: Worker, *, whole: bool) -> None:
        """Take a worker back; one that is spent or not whole is ended, and replaced if needed."""
        worker.jobs += 1
        if self.closed:
            worker.wire.close()  # it ends with its zygote
        elif whole and worker.jobs < self._jobs_per_worker:
            self._to_idle.send_nowait(worker)
        else:
            self._spend(worker)

    def close(self) -> None:
        """Let go of the workers, as their zygote has ended, and refuse the jobs that wait."""
        self.closed = True
        while (worker := self._take_idle()) is not None:
            worker.wire.close()
        for worker in self._doubted:
            worker.wire.close()
        self._to_idle.close()

    async def supply(self, control: ZygoteControl) -> None:
        """Have the zygote fork and end workers, for as long as it lives."""
        async with trio.open_nursery() as hearing:
            while True:
                missing = self._places.processes - len(self._alive)
                if self._spent:
                    await control.end(self._spent.popleft())
                elif self._doubted:
                    zygotes_seconds = await control.seconds_to_answer()
                    doubted = self._doubted.popleft()
                    self._begin_to_hear(hearing, doubted, _deadline(doubted, zygotes_seconds))
                elif missing > 0 and trio.current_time() >= self._again_at:
                    await self._fork(control, hearing)
                elif missing < 0 and (worker := self._take_idle()) is not None:
                    self._spend(worker)
                else:
                    with trio.move_on_at(self._again_at if missing > 0 else math.inf):
                        await self._places.changed.wait()

    async def _lives(self, worker: Worker) -> bool:
        """Return whether a worker gives a sign of life soon; otherwise it is doubted, or ended.

        Cancellation: the worker is doubted, and idle again when it has answered.
        """
        if not worker.ended and trio.current_time() < worker.heard + SILENCE_SECONDS:
            worker.heard = -math.inf
            return True
        worker.asked = trio.current_time()
        try:
            with trio.fail_after(SILENCE_SECONDS):
                await worker.wire.sign_of_life()
        except WorkerLost as error:
            self._lose(worker, str(error))
        except trio.TooSlowError:
            self._doubt(worker)
        except BaseException:
            self._doubt(worker)
            raise
        else:
            return True
        return False

    def _doubt(self, worker: Worker) -> None:
        if self.closed:
            worker.wire.close()
        else:
            self._doubted.append(worker)
            self._places.changed.set()

    def _begin_to_hear(self, hearing: trio.Nursery, worker: Worker, deadline: float) -> None:
        hear = partial(self._hear, worker, deadline)
        hearing.start_soon(hear, name="sign of life of a worker")

    async def _hear(self, worker: Worker, deadline: float) -> None:
        """Have a worker be idle after its sign of life, or end it if that does not come in time."""
        try:
            with trio.fail_at(deadline):
                await worker.wire.sign_of_life()
        except (WorkerLost, trio.TooSlowError) as error:
            if worker.begun:
                self._lose(worker, str(error) or "it gives no sign of life")
            else:
                self._refuse(_ENDED_AS_IT_BEGAN)
                self._spend(worker)
        except BaseException:
            worker.wire.close()
            raise
        else:
            self._refused = None
            worker.begun, worker.heard = True, trio.current_time()
            self._to_idle.send_nowait(worker)
            self._places.changed.set()

    def _take_idle(self) -> Worker | None:
        with suppress(trio.WouldBlock):
            worker = self._idle.receive_nowait()
            assert isinstance(worker, Worker)
            return worker
        return None

    def _lose(self, worker: Worker, why: str) -> None:
        log.warning("idle worker lost", extra=worker.facts | {"error": why})
        self._spend(worker)

    def _spend(self, worker: Worker) -> None:
        worker.wire.close()
        self._alive.remove(worker)
        self._spent.append(worker)
        self._places.changed.set()

    async def _fork(self, control: ZygoteControl, hearing: trio.Nursery) -> None:
        try:
            worker = await control.fork()
        except ForkRefused as error:
            self._refuse(str(error))
        else:
            self._alive.add(worker)
            hearing.start_soon(_see_end, worker, name="end of a worker")
            self._begin_to_hear(hearing, worker, math.inf)

    def _refuse(self, why: str) -> None:
        """Tell the first job that waits that it gets no worker, and make a pause."""
        if why != self._refused:
            log.warning("worker refused", extra={"error": why})
        self._refused, self._again_at = why, trio.current_time() + PAUSE_SECONDS
        if self._idle.statistics().tasks_waiting_receive:
            self._to_idle.send_nowait(InternalError(f"{NO_WORKERS}: {why}"))


def _deadline(doubted: Worker, zygotes_seconds: float) -> float:
    """Return when a doubted worker is ended, after the zygote has shown how slow the machine is."""
    patience = max(SILENCE_SECONDS, ZYGOTES_TIMES * zygotes_seconds)
    return max(doubted.asked + 2 * SILENCE_SECONDS, trio.current_time() + patience)


async def _see_end(worker: Worker) -> None:
    """Shut a worker's wire once it has ended: processes that it has forked have the socket, too."""
    if sys.platform != "linux":
        return
    try:
        process = os.pidfd_open(worker.process_id)
    except OSError:  # the runtime has no descriptor left
        return
    try:
        await trio.lowlevel.wait_readable(process)
    finally:
        os.close(process)
    worker.ended = True
    worker.wire.shut_down()
