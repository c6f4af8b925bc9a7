"""A worker process: calls agents for the runtime at the other end of a socket, one at a time."""

from __future__ import annotations

import importlib
import itertools
import queue
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, nullcontext, suppress
from operator import attrgetter
from typing import Any, Final, TypeVar, TypeVarTuple

import trio

from arcp_trio.runtime.job.asyncio_context import AsyncioContext
from arcp_trio.runtime.job.blocking import BlockingContext
from arcp_trio.runtime.job.context import JobContext
from arcp_trio.runtime.job.desk import Desk, JobFacts
from arcp_trio.runtime.job.link import DistantLink
from arcp_trio.runtime.job.outside import AsyncioWork, BlockingWork, OutsideWork
from arcp_trio.runtime.job.waits import Waits
from arcp_trio.runtime.workers.messages import (
    Unpacker,
    WorkerFrame,
    amounts_of,
    credential_of,
    error_data,
    error_of,
    packed,
    value_data,
    value_of,
)
from arcp_trio.wire.json import Json

_READ_BYTES: Final = 64 * 1024
_MOST_DESCRIPTORS: Final = 16

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


def serve(connection: socket.socket) -> None:
    """Do jobs until the runtime closes the connection."""
    SocketCarrier(connection).serve()


class SocketCarrier:
    """The carrier of a worker: takes operations to the runtime's process.

    One thread reads the socket; any thread may start an operation.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._calls: dict[int, Future[Any]] = {}
        self._waits = Waits()
        self._jobs: queue.SimpleQueue[WorkerFrame | None] = queue.SimpleQueue()
        self._most_bytes = 0
        self._lock = threading.Lock()
        self._work: OutsideWork | None = None
        self._cancelled = False

    def serve(self) -> None:
        """Do jobs in this thread until the runtime closes the connection."""
        threading.Thread(target=self._read, name="runtime", daemon=True).start()
        while (frame := self._jobs.get()) is not None:
            try:
                result = value_data(self._do(frame))
                end = WorkerFrame("end", data=result)
            except BaseException as error:  # noqa: ASYNC103, BLE001 - it ends the job alone
                end = WorkerFrame("error", data=error_data(error))
            self._send(end)

    def _do(self, frame: WorkerFrame) -> Json:
        job = value_of(frame.data)
        self._most_bytes = job["most_bytes"]
        module, _, name = frame.name.partition(":")
        function = attrgetter(name)(importlib.import_module(module))
        loop, left = job["loop"], job["seconds"]
        told = job["facts"]
        facts = JobFacts(**{**told, "input": told["input"].encode()})
        deadline = None if left is None else time.monotonic() + left
        work: OutsideWork
        if loop == "trio":
            work = TrioWork(function, self, facts, left)
        elif loop == "asyncio":
            work = AsyncioWork(function, AsyncioContext(self, facts, deadline))
        else:
            context = BlockingContext(self, facts, deadline)
            work = BlockingWork(function, context, self._waits.cancel)
        with self._lock:
            self._work = work
            if self._cancelled:
                work.cancel()
        return work.run()

    # -- the carrier

    def start(self, operation: Callable[[Desk, *_Ts], Awaitable[_T]], *args: *_Ts) -> Future[_T]:
        """Begin an operation; cancelling the future ends its wait."""
        future: Future[_T] = Future()
        if self._waits.add(future):
            number = self._begin(operation.__name__, future, args)
            future.add_done_callback(lambda done: self._drop(number, done))
        return future

    def ask(self, operation: Callable[[Desk, *_Ts], _T], *args: *_Ts) -> _T:
        """Have an operation carried out that waits for nothing, and block until it is done."""
        future: Future[_T] = Future()
        self._begin(operation.__name__, future, args)
        return future.result()

    def span(self, call_id: str) -> AbstractContextManager[object]:
        """Return an empty block: spans are the runtime's."""
        del call_id
        return nullcontext()

    def _begin(self, name: str, future: Future[Any], args: tuple[Json, ...]) -> int:
        if name == Desk.write_result.__name__:
            data = bytes(args[0])
        elif name == Desk.fail_call.__name__:
            call_id, error = args
            data = value_data([call_id, error_data(error).decode()])
        else:
            data = value_data(list(args))
        if len(data) > self._most_bytes:
            raise ValueError(f"a call of more than {self._most_bytes} bytes")
        number = next(self._numbers)
        self._calls[number] = future
        self._send(WorkerFrame("call", number, name, data))
        return number

    def _drop(self, number: int, done: Future[Any]) -> None:
        """Tell the runtime of a call whose result nobody waits for."""
        if self._calls.pop(number, None) is not None and done.cancelled():
            self._send(WorkerFrame("drop", number))

    def _send(self, frame: WorkerFrame) -> None:
        with self._sending:
            self._connection.sendall(packed(frame))

    # -- the thread that reads

    def _read(self) -> None:
        unpacker, descriptors = Unpacker(None), list[int]()
        while True:
            try:
                data, found, _, _ = socket.recv_fds(
                    self._connection, _READ_BYTES, _MOST_DESCRIPTORS
                )
            except OSError:
                data, found = b"", []
            if not data:
                self._jobs.put(None)
                self._waits.cancel()
                return
            descriptors += found
            unpacker.feed(data)
            while (frame := unpacker.next()) is not None:
                self._take(frame, descriptors)

    def _take(self, frame: WorkerFrame, descriptors: list[int]) -> None:
        if frame.kind == "job":
            self._waits = Waits()
            with self._lock:
                self._work, self._cancelled = None, False
            self._jobs.put(frame)
        elif frame.kind == "cancel":
            with self._lock:
                self._cancelled = True
                if self._work is not None:
                    self._work.cancel()
        elif (future := self._calls.pop(frame.call, None)) is not None:
            with suppress(InvalidStateError):
                if frame.kind == "failed":
                    future.set_exception(error_of(frame.data))
                else:
                    future.set_result(_result(frame, descriptors))


def _result(frame: WorkerFrame, descriptors: list[int]) -> object:
    if frame.kind == "file":
        return descriptors.pop(0)
    if frame.kind == "bytes":
        return frame.data
    if frame.name == Desk.budget.__name__:
        return amounts_of(frame.data)
    value = value_of(frame.data)
    if frame.name == Desk.credentials.__name__:
        return [credential_of(each) for each in value]
    return credential_of(value) if frame.name == Desk.rotate.__name__ else value


class TrioLink(DistantLink):
    """A link whose waits are Trio's, in a worker's own loop."""

    async def _wait(self, future: Future[_T]) -> _T:
        token, done = trio.lowlevel.current_trio_token(), trio.Event()

        def wake(_future: Future[_T]) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(done.set)

        future.add_done_callback(wake)
        try:
            await done.wait()
        except trio.Cancelled:
            future.cancel()
            raise
        return future.result()


class TrioWork:
    """The call of an `async def` agent, in a Trio loop of its own."""

    def __init__(
        self,
        function: Callable[[JobContext], Awaitable[Json]],
        carrier: SocketCarrier,
        facts: JobFacts,
        seconds: float | None,
    ) -> None:
        self._function = function
        self._carrier = carrier
        self._facts = facts
        self._seconds = seconds
        self._lock = threading.Lock()
        self._cancelled = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()

    def run(self) -> Json:
        """Run a loop until the function has returned."""
        return trio.run(self._call)

    async def _call(self) -> Json:
        with self._lock:
            self._token = trio.lowlevel.current_trio_token()
            if self._cancelled:
                self._scope.cancel()
        deadline = None if self._seconds is None else trio.current_time() + self._seconds
        with self._scope:
            return await self._function(JobContext(TrioLink(self._carrier), self._facts, deadline))

    def cancel(self) -> None:
        """Cancel the function."""
        with self._lock:
            self._cancelled = True
            if self._token is not None:
                with suppress(trio.RunFinishedError):
                    self._token.run_sync_soon(self._scope.cancel)
