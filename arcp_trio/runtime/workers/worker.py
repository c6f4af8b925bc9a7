"""A worker process: calls agents for the runtime at the other end of a socket, one at a time."""

from __future__ import annotations

import importlib
import itertools
import os
import queue
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, nullcontext, suppress
from operator import attrgetter
from typing import Any, Final, TypeVar, TypeVarTuple, cast

import trio

from arcp_trio.runtime.job.asyncio_context import AsyncioContext
from arcp_trio.runtime.job.blocking import AgentCancelled, BlockingContext
from arcp_trio.runtime.job.context import JobContext
from arcp_trio.runtime.job.desk import Desk, JobFacts
from arcp_trio.runtime.job.link import DistantLink
from arcp_trio.runtime.job.outside import AsyncioWork, BlockingWork, OutsideWork
from arcp_trio.runtime.job.waits import Waits
from arcp_trio.runtime.workers.messages import (
    SPENT,
    AgentCall,
    Unpacker,
    WorkerFrame,
    amounts_of,
    call_of,
    credential_of,
    error_data,
    error_of,
    packed,
    value_data,
    value_of,
)
from arcp_trio.wire.errors import InternalError
from arcp_trio.wire.json import JsonLike, list_in, object_in

_READ_BYTES: Final = 64 * 1024
_MOST_DESCRIPTORS: Final = 16

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


def serve(connection: socket.socket) -> None:
    """Do jobs until the runtime closes the connection."""
    _WorkerMain(connection).serve()


class _WorkerMain:
    """The process itself: one thread reads the socket, any thread may write to it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._jobs: queue.SimpleQueue[WorkerFrame | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._carrier: SocketCarrier | None = None
        self._work: OutsideWork | None = None
        self._cancelled = False

    def serve(self) -> None:
        """Do jobs in this thread until the runtime closes the connection."""
        threading.Thread(target=self._read, name="runtime", daemon=True).start()
        usual = set(threading.enumerate())
        while (frame := self._jobs.get()) is not None:
            job = call_of(frame.data)
            carrier = SocketCarrier(self._send, self._numbers, job.most_bytes)
            with self._lock:
                self._carrier = carrier
            end = self._do(frame.name, job, carrier)
            if _left_running(usual):
                end.name = SPENT
            with self._sending:  # no call of this job follows
                carrier.close()
                self._connection.sendall(packed(end))

    def _do(self, place: str, job: AgentCall, carrier: SocketCarrier) -> WorkerFrame:
        """Call the job's agent, and return the frame that says how that ended."""
        try:
            work = _work(place, job, carrier)
            with self._lock:
                self._work = work
                if self._cancelled:
                    work.cancel()
            data = value_data(work.run())
        except BaseException as error:  # noqa: ASYNC103, BLE001 - it ends the job alone
            return WorkerFrame("error", data=error_data(error))  # noqa: ASYNC104
        if len(data) > job.most_bytes:
            too_much = InternalError(f"the agent returned more than {job.most_bytes} bytes")
            return WorkerFrame("error", data=error_data(too_much))
        return WorkerFrame("end", data=data)

    def _send(self, carrier: SocketCarrier, frame: WorkerFrame) -> None:
        with self._sending:
            carrier.refuse_if_closed()
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
                if self._carrier is not None:
                    self._carrier.cancel()
                return
            descriptors += found
            unpacker.feed(data)
            while (frame := unpacker.next()) is not None:
                self._take(frame, descriptors)

    def _take(self, frame: WorkerFrame, descriptors: list[int]) -> None:
        if frame.kind == "job":
            with self._lock:
                self._work, self._cancelled = None, False
            self._jobs.put(frame)
        elif frame.kind == "cancel":
            with self._lock:
                self._cancelled = True
                if self._work is not None:
                    self._work.cancel()
        elif self._carrier is not None:
            self._carrier.take(frame, descriptors)


def _left_running(usual: set[threading.Thread]) -> bool:
    """Return whether a job has left threads running; Trio keeps idle ones for a while."""
    return any(
        thread not in usual and not thread.name.startswith("Trio thread")
        for thread in threading.enumerate()
    )


def _work(place: str, job: AgentCall, carrier: SocketCarrier) -> OutsideWork:
    """Return the call of an agent, which `place` names as `module:name`."""
    module, _, name = place.partition(":")
    function = attrgetter(name)(importlib.import_module(module))
    facts, left = job.facts, job.seconds
    if job.loop == "trio":
        return TrioWork(function, carrier, facts, left)
    deadline = None if left is None else time.monotonic() + left
    if job.loop == "asyncio":
        return AsyncioWork(function, AsyncioContext(carrier, facts, deadline))
    return BlockingWork(function, BlockingContext(carrier, facts, deadline), carrier.cancel)


class SocketCarrier:
    """The carrier of one job in a worker: takes operations to the runtime's process."""

    def __init__(
        self,
        send: Callable[[SocketCarrier, WorkerFrame], None],
        numbers: Iterator[int],
        most_bytes: int,
    ) -> None:
        self._send = send
        self._numbers = numbers
        self._most_bytes = most_bytes
        self._calls: dict[int, Future[Any]] = {}
        self._waits = Waits()
        self._closed = False

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

    def cancel(self) -> None:
        """End each wait, and refuse to begin another, by `AgentCancelled`."""
        self._waits.cancel()

    def close(self) -> None:
        """Refuse further calls: what the agent has left running must not act for another job."""
        self._closed = True
        self.cancel()

    def refuse_if_closed(self) -> None:
        """Raise if the job has ended.

        Raises:
            AgentCancelled: it has.
        """
        if self._closed:
            raise AgentCancelled("the job has ended")

    def take(self, frame: WorkerFrame, descriptors: list[int]) -> None:
        """Take the answer to a call."""
        value = None if frame.kind == "failed" else _result(frame, descriptors)
        future = self._calls.pop(frame.call, None)
        if future is None:
            if frame.kind == "file":
                os.close(cast("int", value))
            return
        with suppress(InvalidStateError):
            if frame.kind == "failed":
                future.set_exception(error_of(frame.data))
            else:
                future.set_result(value)

    def _begin(self, name: str, future: Future[Any], args: tuple[object, ...]) -> int:
        if name == Desk.write_result.__name__:
            data = cast("bytes", args[0])
        elif name == Desk.fail_call.__name__:
            call_id, error = cast("tuple[str, BaseException]", args)
            data = value_data([call_id, error_data(error).decode()])
        else:
            data = value_data(cast("Sequence[JsonLike]", args))
        if len(data) > self._most_bytes:
            raise ValueError(f"a worker process sends at most {self._most_bytes} bytes at once")
        number = next(self._numbers)
        self._calls[number] = future
        self._send(self, WorkerFrame("call", number, name, data))
        return number

    def _drop(self, number: int, done: Future[Any]) -> None:
        """Tell the runtime of a call whose result nobody waits for."""
        if self._calls.pop(number, None) is not None and done.cancelled():
            with suppress(AgentCancelled):
                self._send(self, WorkerFrame("drop", number))


def _result(frame: WorkerFrame, descriptors: list[int]) -> object:
    if frame.kind == "file":
        return descriptors.pop(0)
    if frame.kind == "bytes":
        return frame.data
    if frame.name == Desk.budget.__name__:
        return amounts_of(frame.data)
    value = value_of(frame.data)
    if frame.name == Desk.credentials.__name__:
        return [credential_of(object_in(each)) for each in list_in(value)]
    return credential_of(object_in(value)) if frame.name == Desk.rotate.__name__ else value


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
        function: Callable[[JobContext], Awaitable[JsonLike]],
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

    def run(self) -> JsonLike:
        """Run a loop until the function has returned."""
        return trio.run(self._call)

    async def _call(self) -> JsonLike:
        with self._lock:
            self._token = trio.lowlevel.current_trio_token()
            if self._cancelled:
                self._scope.cancel()
        deadline = None if self._seconds is None else trio.current_time() + self._seconds
        with self._scope:
            return await self._function(JobContext(TrioLink(self._carrier), self._facts, deadline))
        return None  # the job is cancelled: its outcome is known

    def cancel(self) -> None:
        """Cancel the function."""
        with self._lock:
            self._cancelled = True
            if self._token is not None:
                with suppress(trio.RunFinishedError):
                    self._token.run_sync_soon(self._scope.cancel)
