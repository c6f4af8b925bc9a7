"""The workers of one zygote: forked as they are needed, handed to jobs, and ended when spent.

An idle worker gives a sign of life before it gets a job: an earlier job may have left it standing
still. How long a machine takes for that is not known beforehand, so the zygote is asked, too.
"""

from __future__ import annotations

import json
import logging
import math
import socket
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import attrs
import trio

from arcp_trio.runtime.workers.places import WorkerPlaces
from arcp_trio.runtime.workers.wire import Wire, WorkerLost
from arcp_trio.runtime.workers.zygote import MOST_REQUEST
from arcp_trio.wire.errors import InternalError

log = logging.getLogger(__name__)

NO_WORKERS: Final = "the agent's process cannot be started"

SILENCE_SECONDS: Final = 2.0
"""How long a job waits for the sign of life of one worker before it asks another one."""
ZYGOTES_TIMES: Final = 10
"""A silent worker is ended after it has had as many times as long as the zygote needs to answer."""


@attrs.define(eq=False)
class Worker:
    """A worker process."""

    process_id: int
    wire: Wire
    jobs: int = 0
    heard: float = -math.inf
    """When it gave a sign of life that no job was there to hear."""


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
        self._to_idle, self._idle = trio.open_memory_channel[Worker](math.inf)
        self._closed = False

    async def take(self) -> Worker:
        """Return a worker that lives, which is the caller's until it is put back.

        Raises:
            InternalError: the zygote has ended.
        """
        while True:
            try:
                worker = await self._idle.receive()
            except trio.EndOfChannel:
                raise InternalError(NO_WORKERS) from None
            if await self._lives(worker):
                return worker

    def put_back(self, worker: Worker, *, whole: bool) -> None:
        """Take a worker back; one that is spent or not whole is ended, and replaced if needed."""
        worker.jobs += 1
        if self._closed:
            worker.wire.close()  # it ends with its zygote
        elif whole and worker.jobs < self._jobs_per_worker:
            self._to_idle.send_nowait(worker)
        else:
            self._spend(worker)

    def close(self) -> None:
        """Let go of the workers, as their zygote has ended, and refuse the jobs that wait."""
        self._closed = True
        while (worker := self._take_idle()) is not None:
            worker.wire.close()
        for worker in self._doubted:
            worker.wire.close()
        self._to_idle.close()

    async def supply(self, control: trio.socket.SocketType) -> None:
        """Have the zygote fork and end workers, for as long as it lives."""
        async with trio.open_nursery() as hearing:
            while True:
                missing = self._places.processes - len(self._alive)
                if self._spent:
                    await _end(control, self._spent.popleft())
                elif self._doubted:
                    patience = await _patience(control)
                    hear = partial(self._hear, self._doubted.popleft(), patience)
                    hearing.start_soon(hear, name="sign of life of a worker")
                elif missing > 0:
                    await self._fork(control)
                elif missing < 0 and (worker := self._take_idle()) is not None:
                    self._spend(worker)
                else:
                    await self._places.changed.wait()

    async def _lives(self, worker: Worker) -> bool:
        """Return whether a worker gives a sign of life soon; otherwise it is doubted.

        Cancellation: the worker is doubted, and idle again when it has answered.
        """
        if trio.current_time() < worker.heard + SILENCE_SECONDS:
            worker.heard = -math.inf
            return True
        lives = False
        try:
            with suppress(WorkerLost), trio.move_on_after(SILENCE_SECONDS):
                await worker.wire.sign_of_life()
                lives = True
        finally:
            if not lives:
                self._doubt(worker)
        return lives

    def _doubt(self, worker: Worker) -> None:
        if self._closed:
            worker.wire.close()
        else:
            self._doubted.append(worker)
            self._places.changed.set()

    async def _hear(self, worker: Worker, patience: float) -> None:
        """Have a worker be idle after its sign of life, or end it if that does not come in time."""
        try:
            with trio.fail_after(patience):
                await worker.wire.sign_of_life()
        except (WorkerLost, trio.TooSlowError) as error:
            why = str(error) or "it gives no sign of life"
            facts = {"process_id": worker.process_id, "jobs": worker.jobs, "error": why}
            log.warning("idle worker lost", extra=facts)
            self._spend(worker)
        except BaseException:
            worker.wire.close()
            raise
        else:
            worker.heard = trio.current_time()
            self._to_idle.send_nowait(worker)

    def _take_idle(self) -> Worker | None:
        with suppress(trio.WouldBlock):
            return self._idle.receive_nowait()
        return None

    def _spend(self, worker: Worker) -> None:
        worker.wire.close()
        self._alive.remove(worker)
        self._spent.append(worker)
        self._places.changed.set()

    async def _fork(self, control: trio.socket.SocketType) -> None:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [theirs.fileno()]))]
                child = (await answer_to({"fork": True}, control, rights))["child"]
        except BaseException:
            ours.close()
            raise
        worker = Worker(child, Wire(trio.socket.from_stdlib_socket(ours)))
        self._alive.add(worker)
        self._to_idle.send_nowait(worker)


async def _patience(control: trio.socket.SocketType) -> float:
    """Return how long a healthy worker may need for a sign of life on this machine now."""
    began = trio.current_time()
    await answer_to({}, control)
    return max(SILENCE_SECONDS, ZYGOTES_TIMES * (trio.current_time() - began))


async def _end(control: trio.socket.SocketType, worker: Worker) -> None:
    status = (await answer_to({"end": worker.process_id}, control)).get("status")
    facts = {"process_id": worker.process_id, "jobs": worker.jobs, "exit_status": status}
    log.info("worker ended", extra=facts)


async def answer_to(
    request: Mapping[str, object],
    control: trio.socket.SocketType,
    rights: Sequence[tuple[int, int, array[int]]] = (),
) -> dict[str, Any]:
    """Send the zygote a request, and return its answer.

    Raises:
        WorkerLost: the zygote has ended.
    """
    await control.sendmsg([json.dumps(request).encode()], rights)
    data = await control.recv(MOST_REQUEST)
    if not data:
        raise WorkerLost("the zygote ended")
    answer: dict[str, Any] = json.loads(data)
    return answer
