"""The workers of one zygote: forked as they are needed, handed to jobs, and ended when spent."""

from __future__ import annotations

import json
import logging
import math
import socket
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import attrs
import trio

from arcp_trio.runtime.workers.places import WorkerPlaces
from arcp_trio.runtime.workers.wire import Wire, WorkerLost
from arcp_trio.runtime.workers.zygote import MOST_REQUEST
from arcp_trio.wire.errors import InternalError

log = logging.getLogger(__name__)

NO_WORKERS: Final = "the agent's process cannot be started"


@attrs.define(eq=False)
class Worker:
    """A worker process."""

    process_id: int
    wire: Wire
    jobs: int = 0


class WorkerProcesses:
    """The workers of one zygote: as many as the places need."""

    def __init__(self, places: WorkerPlaces, jobs_per_worker: int) -> None:
        self._places = places
        self._jobs_per_worker = jobs_per_worker
        self._alive: set[Worker] = set()
        """Workers that have a job, or are idle: no more than the places need, but for a moment."""
        self._spent: deque[Worker] = deque()
        """Workers to end."""
        self._to_idle, self._idle = trio.open_memory_channel[Worker](math.inf)
        self._closed = False

    async def take(self) -> Worker:
        """Return a worker, which is the caller's until it is put back.

        Raises:
            InternalError: the zygote has ended.
        """
        try:
            return await self._idle.receive()
        except trio.EndOfChannel:
            raise InternalError(NO_WORKERS) from None

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
        self._to_idle.close()

    async def supply(self, control: trio.socket.SocketType) -> None:
        """Have the zygote fork and end workers, for as long as it lives."""
        while True:
            missing = self._places.processes - len(self._alive)
            if self._spent:
                await _end(control, self._spent.popleft())
            elif missing > 0:
                await self._fork(control)
            elif missing < 0 and (worker := self._take_idle()) is not None:
                self._spend(worker)
            else:
                await self._places.changed.wait()

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
                child = (await answer_to({}, control, rights))["child"]
        except BaseException:
            ours.close()
            raise
        worker = Worker(child, Wire(trio.socket.from_stdlib_socket(ours)))
        self._alive.add(worker)
        self._to_idle.send_nowait(worker)


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
