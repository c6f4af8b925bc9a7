"""Which workers are ended: those that never answer, and not those that are slow. Virtual time."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import pytest
import trio

from arcp_trio.runtime.workers.control import ZygoteControl
from arcp_trio.runtime.workers.messages import Unpacker, WorkerFrame, packed
from arcp_trio.runtime.workers.places import WorkerPlaces
from arcp_trio.runtime.workers.processes import SILENCE_SECONDS, ZYGOTES_TIMES, WorkerProcesses

READ_BYTES: Final = 1_000


@attrs.define(eq=False)
class StandIns:
    """Tasks in the roles of a zygote and of its workers, on a machine as slow as is said."""

    processes: WorkerProcesses
    zygote_seconds: float = 0
    """How long the zygote needs for an answer."""
    worker_seconds: float = 0
    """How long each worker needs for a sign of life."""
    babbling: bool = False
    """Whether a worker that is asked for a sign of life sends something else before it."""
    process_id: int | None = None
    """The process id of further workers; otherwise they are counted."""
    ended: list[int] = attrs.field(factory=list[int])

    async def zygote(self, control: socket.socket, nursery: trio.Nursery) -> None:
        """Answer the requests to a zygote."""
        count = 0
        while True:
            await trio.lowlevel.wait_readable(control)
            data, descriptors, _, _ = socket.recv_fds(control, READ_BYTES, 1)
            request = json.loads(data)
            await trio.sleep(self.zygote_seconds)
            if "fork" in request:
                count += 1
                nursery.start_soon(self._worker, descriptors[0])
            elif "end" in request:
                self.ended.append(request["end"])
            child = self.process_id or count
            control.send(json.dumps({"child": child, "status": 0}).encode())

    async def _worker(self, descriptor: int) -> None:
        unpacker = Unpacker()
        with trio.socket.from_stdlib_socket(socket.socket(fileno=descriptor)) as connection:
            while data := await connection.recv(READ_BYTES):
                unpacker.feed(data)
                while (frame := unpacker.next()) is not None:
                    assert frame == WorkerFrame("ask")
                    await trio.sleep(self.worker_seconds)
                    before = packed(WorkerFrame("call")) if self.babbling else b""
                    self.babbling = False
                    await connection.send(before + packed(WorkerFrame("alive")))


@asynccontextmanager
async def open_stand_ins() -> AsyncGenerator[StandIns, None]:
    """Open the processes of a pool with one place, whose worker has done a job."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    processes = WorkerProcesses(WorkerPlaces(1), 1_000)
    stand_ins = StandIns(processes)
    with trio.socket.from_stdlib_socket(ours) as control, theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stand_ins.zygote, theirs, nursery)
            nursery.start_soon(processes.supply, ZygoteControl(control))
            processes.put_back(await processes.take(), whole=True)
            await trio.sleep(1_000)
            yield stand_ins
            nursery.cancel_scope.cancel()
    processes.close()


@pytest.mark.parametrize(("zygotes", "seconds"), [(0, 1), (0, 3), (1, 10), (20, 20), (20, 180)])
async def test_a_slow_machine_ends_no_worker(
    zygotes: float, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Jobs have the one worker there is, though it is much slower than the slow zygote."""
    del autojump_clock
    async with open_stand_ins() as stand_ins:
        stand_ins.zygote_seconds, stand_ins.worker_seconds = zygotes, seconds
        for _ in range(5):
            began = trio.current_time()
            worker = await stand_ins.processes.take()
            assert trio.current_time() - began <= zygotes + seconds + SILENCE_SECONDS
            assert worker.process_id == 1
            stand_ins.processes.put_back(worker, whole=True)
            await trio.sleep(1_000)
        assert stand_ins.ended == []


@pytest.mark.parametrize("seconds", [0, 1, 20])
async def test_a_silent_worker_is_ended_on_any_machine(
    seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    """A worker that never answers is ended once the zygote has shown how slow the machine is."""
    del autojump_clock
    async with open_stand_ins() as stand_ins:
        stand_ins.zygote_seconds, stand_ins.worker_seconds = seconds, 1_000_000
        began = trio.current_time()
        with trio.move_on_after(SILENCE_SECONDS + (1 + ZYGOTES_TIMES) * seconds + SILENCE_SECONDS):
            await stand_ins.processes.take()
        await trio.sleep(seconds + 0.1)
        assert stand_ins.ended == [1]
        assert trio.current_time() - began >= 2 * SILENCE_SECONDS


async def test_a_job_whose_limit_is_short_finds_a_silent_worker(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A worker is ended although no job waits for it as long as that takes."""
    del autojump_clock
    async with open_stand_ins() as stand_ins:
        stand_ins.worker_seconds = 1_000_000
        with trio.move_on_after(0.1):
            await stand_ins.processes.take()
        stand_ins.worker_seconds = 0
        with trio.fail_after(2 * SILENCE_SECONDS):
            worker = await stand_ins.processes.take()
        assert (worker.process_id, stand_ins.ended) == (2, [1])
        stand_ins.processes.put_back(worker, whole=True)


async def test_a_worker_that_sends_a_call_without_a_job_is_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A worker that sends something else than a sign of life gets no job, whatever follows."""
    del autojump_clock
    async with open_stand_ins() as stand_ins:
        stand_ins.babbling = True
        worker = await stand_ins.processes.take()
        assert (worker.process_id, stand_ins.ended) == (2, [1])
        stand_ins.processes.put_back(worker, whole=True)


async def test_a_worker_that_ends_before_its_first_job_gets_none(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A worker whose process ends gets no job, although it has given a sign of life just now."""
    del autojump_clock
    async with open_stand_ins() as stand_ins:
        process = await trio.lowlevel.open_process(["sleep", "60"])
        stand_ins.process_id = process.pid
        stand_ins.processes.put_back(await stand_ins.processes.take(), whole=False)
        await trio.testing.wait_all_tasks_blocked()
        stand_ins.process_id = None
        process.kill()
        await process.wait()
        await trio.testing.wait_all_tasks_blocked()
        worker = await stand_ins.processes.take()
        assert (worker.process_id, stand_ins.ended) == (3, [1, process.pid])
        stand_ins.processes.put_back(worker, whole=True)


@pytest.mark.parametrize("seconds", [0, 3])
async def test_a_job_may_be_cancelled_at_any_moment(
    seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    """The worker that a cancelled job was to have is there for the next one, at once."""
    del autojump_clock

    async def cancel_after(turns: int, scope: trio.CancelScope) -> None:
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    async with open_stand_ins() as stand_ins:
        stand_ins.worker_seconds = seconds
        for turns in range(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_after, turns, nursery.cancel_scope)
                stand_ins.processes.put_back(await stand_ins.processes.take(), whole=True)
            with trio.fail_after(2 * seconds + SILENCE_SECONDS):
                worker = await stand_ins.processes.take()
            assert worker.process_id == 1
            stand_ins.processes.put_back(worker, whole=True)
        assert stand_ins.ended == []
