"""How a context in a worker process reaches its job: over the socket to the runtime."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, cast

import attrs

from arcp_trio.runtime.job.blocking import AgentCancelled
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.loop_carrier import IN_ORDER
from arcp_trio.runtime.job.waits import Waits
from arcp_trio.runtime.workers.allowance import MOST_EVENTS, Allowance
from arcp_trio.runtime.workers.lane import Lane, LaneOfEvents, LaneOfWaits
from arcp_trio.runtime.workers.messages import (
    FAILURES,
    AgentCall,
    WorkerFrame,
    amounts_of,
    credential_of,
    error_data,
    error_of,
    value_data,
    value_of,
)
from arcp_trio.wire.json import JsonLike, list_in, object_in

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


@attrs.frozen(eq=False)
class _Begun:
    """A call that has no answer yet."""

    future: Future[Any]
    lane: Lane | None
    size: int


class SocketCarrier:
    """The carrier of one job in a worker: takes operations to the runtime's process."""

    def __init__(
        self,
        send: Callable[[SocketCarrier, WorkerFrame], None],
        numbers: Iterator[int],
        job: AgentCall,
    ) -> None:
        self._send = partial(send, self)
        self._numbers = numbers
        self._most_bytes = job.most_bytes
        self._events = LaneOfEvents(self._send, Allowance(MOST_EVENTS, job.most_bytes))
        self._others = LaneOfWaits(self._send, Allowance(job.most_waits, job.most_bytes))
        self._calls: dict[int, _Begun] = {}
        self._waits = Waits()
        self._closed = False

    def start(self, operation: Callable[[Desk, *_Ts], Awaitable[_T]], *args: *_Ts) -> Future[_T]:
        """Begin an operation; cancelling the future ends its wait."""
        data = self._data(operation.__name__, args)
        future: Future[_T] = Future()
        if self._waits.add(future):
            lane = self._events if operation in IN_ORDER else self._others
            number = self._begin(operation.__name__, data, future, lane)
            future.add_done_callback(lambda _done: self._drop(number))
        return future

    def ask(self, operation: Callable[[Desk, *_Ts], _T], *args: *_Ts) -> _T:
        """Have an operation carried out that waits for nothing, and block until it is done."""
        data = self._data(operation.__name__, args)
        future: Future[_T] = Future()
        self._begin(operation.__name__, data, future)
        return future.result()

    def span(self, call_id: str) -> AbstractContextManager[object]:
        """Return an empty block: spans are the runtime's."""
        del call_id
        return nullcontext()

    def cancel(self) -> None:
        """End each wait, and refuse to begin another, by `AgentCancelled`."""
        self._waits.cancel()

    def end(self, frame: WorkerFrame) -> None:
        """End each wait, and the job after the events that the agent has begun."""
        self.cancel()
        self._events.end(frame)

    def close(self) -> None:
        """Refuse further calls: what the agent has left running must not act for another job."""
        self._closed = True

    def refuse_if_closed(self) -> None:
        """Raise if the job has ended.

        Raises:
            AgentCancelled: it has.
        """
        if self._closed:
            raise AgentCancelled("the job has ended")

    def take(self, frame: WorkerFrame, descriptors: deque[int | None]) -> None:
        """Take the answer to a call; `None` stands for a descriptor that was lost on its way."""
        descriptor = descriptors.popleft() if frame.kind == "file" else None
        call = self._calls.pop(frame.call, None)
        if call is not None and call.lane is not None:
            with suppress(AgentCancelled):
                call.lane.answered(call.size)
        awaited = call is not None and _settle(call.future, frame, descriptor)
        if not awaited and descriptor is not None:
            os.close(descriptor)

    def _data(self, name: str, args: tuple[object, ...]) -> bytes:
        """Encode the arguments of a call.

        Raises:
            ValueError: they are too large.
        """
        if name == Desk.write_result.__name__:
            written, author = cast("tuple[bytes, str]", args)
            data = author.encode() + b"\0" + written
        elif name in FAILURES:
            *named, error = args
            told = error_data(cast("BaseException", error)).decode()
            data = value_data([*cast("Sequence[str]", named), told])
        else:
            data = value_data(cast("Sequence[JsonLike]", args))
        if len(data) > self._most_bytes:
            raise ValueError(f"a worker process sends at most {self._most_bytes} bytes at once")
        return data

    def _begin(self, name: str, data: bytes, future: Future[Any], lane: Lane | None = None) -> int:
        number = next(self._numbers)
        self._calls[number] = _Begun(future, lane, len(data))
        begin = self._send if lane is None else lane.begin
        begin(WorkerFrame("call", number, name, data))
        return number

    def _drop(self, number: int) -> None:
        """Give up a call that nobody waits for any more, unless its answer has come."""
        call = self._calls.get(number)
        if call is not None and call.lane is not None:
            with suppress(AgentCancelled):
                if call.lane.drop(number):
                    del self._calls[number]


def _settle(future: Future[Any], frame: WorkerFrame, descriptor: int | None) -> bool:
    """Have a future end by an answer; return False if nobody waits for it by now."""
    try:
        if frame.kind == "failed":
            future.set_exception(error_of(frame.data))
        elif frame.kind == "file" and descriptor is None:
            future.set_exception(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        else:
            future.set_result(_result(frame) if descriptor is None else descriptor)
    except InvalidStateError:
        return False
    return True


def _result(frame: WorkerFrame) -> object:
    if frame.kind == "bytes":
        return frame.data
    if frame.name == Desk.budget.__name__:
        return amounts_of(frame.data)
    value = value_of(frame.data)
    if frame.name == Desk.credentials.__name__:
        return [credential_of(object_in(each)) for each in list_in(value)]
    return credential_of(object_in(value)) if frame.name == Desk.rotate.__name__ else value
