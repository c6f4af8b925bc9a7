"""How a context in a worker process reaches its job: over the socket to the runtime."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar, TypeVarTuple, cast

from arcp_trio.runtime.job.blocking import AgentCancelled
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.waits import Waits
from arcp_trio.runtime.workers.messages import (
    FAILURES,
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
        elif name in FAILURES:
            *named, error = args
            told = error_data(cast("BaseException", error)).decode()
            data = value_data([*cast("Sequence[str]", named), told])
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
