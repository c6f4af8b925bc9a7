"""A worker process: calls agents for the runtime at the other end of a socket, one at a time."""

from __future__ import annotations

import importlib
import itertools
import os
import queue
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Final

from arcp_trio.runtime.job.asyncio_context import AsyncioContext
from arcp_trio.runtime.job.blocking import BlockingContext
from arcp_trio.runtime.job.outside import AsyncioWork, BlockingWork, OutsideWork
from arcp_trio.runtime.limits import STREAM_IT, limit_hit, too_large
from arcp_trio.runtime.workers.messages import (
    SPENT,
    AgentCall,
    Unpacker,
    WorkerFrame,
    call_of,
    error_data,
    packed,
    value_data,
)
from arcp_trio.runtime.workers.socket_carrier import SocketCarrier
from arcp_trio.runtime.workers.trio_work import TrioWork

_READ_BYTES: Final = 64 * 1024


def serve(connection: socket.socket) -> None:
    """Do jobs until the runtime closes the connection."""
    _WorkerMain(connection).serve()


class _WorkerMain:
    """The process itself: a thread reads the socket, and any thread may write to it.

    Another thread writes what the socket does not take at once, so that neither the agent's loop
    nor the thread that reads waits for the runtime.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Condition()
        self._unsent: deque[bytes] = deque()
        self._numbers = itertools.count(1)
        self._to_do: queue.SimpleQueue[WorkerFrame | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._carrier: SocketCarrier | None = None
        self._work: OutsideWork | None = None
        self._cancelled = False

    def serve(self) -> None:
        """Do jobs in this thread until the runtime closes the connection."""
        for name, target in (("from the runtime", self._read), ("to the runtime", self._write)):
            threading.Thread(target=_or_end, args=(target,), name=name, daemon=True).start()
        usual = set(threading.enumerate())
        while (frame := self._to_do.get()) is not None:
            if frame.kind == "ask":
                with self._sending:
                    self._put(WorkerFrame("alive"))
            else:
                self._do_job(frame, usual)

    def _do_job(self, frame: WorkerFrame, usual: set[threading.Thread]) -> None:
        job = call_of(frame.data)
        carrier = SocketCarrier(self._send, self._numbers, job)
        with self._lock:
            self._carrier = carrier
        end = self._do(frame.name, job, carrier)
        if _left_running(usual):
            end.name = SPENT
        carrier.end(end)

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
            helps = too_large("the result", len(data), job.most_bytes, STREAM_IT)
            too_big = limit_hit("frame_bytes_in", job.most_bytes, what_helps=helps)
            return WorkerFrame("error", data=error_data(too_big))
        return WorkerFrame("end", data=data)

    def _send(self, carrier: SocketCarrier, frame: WorkerFrame) -> None:
        with self._sending:
            carrier.refuse_if_closed()
            if frame.kind in ("end", "error"):
                carrier.close()
            self._put(frame)

    def _put(self, frame: WorkerFrame) -> None:
        """Send a frame, or leave the rest of it to the thread that writes."""
        data, sent = packed(frame), 0
        if not self._unsent:
            with suppress(OSError):  # the socket is full, or closed: the other thread meets it
                sent = self._connection.send(data, socket.MSG_DONTWAIT)
        if sent < len(data):
            self._unsent.append(data[sent:])
            self._sending.notify()

    # -- the thread that writes

    def _write(self) -> None:
        with suppress(OSError):  # the thread that reads meets it, too
            while True:
                with self._sending:
                    while not self._unsent:
                        self._sending.wait()
                    data = self._unsent[0]
                self._connection.sendall(data)
                with self._sending:
                    self._unsent.popleft()

    # -- the thread that reads

    def _read(self) -> None:
        unpacker, descriptors = Unpacker(), deque[int | None]()
        while True:
            try:
                data, found, flags, _ = socket.recv_fds(self._connection, _READ_BYTES, 1)
            except OSError:
                data, found, flags = b"", [], 0
            if not data:
                self._to_do.put(None)
                if self._carrier is not None:
                    self._carrier.cancel()
                return
            # A read brings one descriptor at most. It is lost if this process can have no more.
            descriptors += [None] if flags & socket.MSG_CTRUNC else found
            unpacker.feed(data)
            while (frame := unpacker.next()) is not None:
                self._take(frame, descriptors)

    def _take(self, frame: WorkerFrame, descriptors: deque[int | None]) -> None:
        if frame.kind == "job":
            with self._lock:
                self._work, self._cancelled = None, False
            self._to_do.put(frame)
        elif frame.kind == "ask":
            self._to_do.put(frame)  # the thread that is to do the next job answers it
        elif frame.kind == "cancel":
            with self._lock:
                self._cancelled = True
                if self._work is not None:
                    self._work.cancel()
        elif self._carrier is not None:
            self._carrier.take(frame, descriptors)


def _or_end(serve: Callable[[], None]) -> None:
    """Call what the process cannot go on without, and end the process if it raises."""
    try:
        serve()
    except BaseException as error:  # noqa: ASYNC103, BLE001 - it may have lost an answer
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(1)


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
