"""The worker's end of the back-pressure: calls past a job's allowance wait in the worker."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable

from arcp_trio.runtime.workers.allowance import Allowance
from arcp_trio.runtime.workers.messages import WorkerFrame


class Lane(ABC):
    """Sends a job's calls of one kind in turn, as their allowance permits. For any thread."""

    def __init__(self, send: Callable[[WorkerFrame], None], allowance: Allowance) -> None:
        self._send = send
        self._allowance = allowance
        self._lock = threading.Lock()
        self._waiting: OrderedDict[int, WorkerFrame] = OrderedDict()

    def begin(self, call: WorkerFrame) -> None:
        """Send a call, or have it wait."""
        with self._lock:
            self._waiting[call.call] = call
            self._send_what_fits()

    def drop(self, number: int) -> bool:
        """Give up a call that has no answer yet; return whether none will come."""
        with self._lock:
            if number in self._waiting:
                return self._drop_waiting(number)
            self._send(WorkerFrame("drop", number))
            return False

    @abstractmethod
    def _drop_waiting(self, number: int) -> bool: ...

    def answered(self, size: int) -> None:
        """Take note of the answer to a call of this size."""
        with self._lock:
            self._allowance.give_back(size)
            self._send_what_fits()

    def _send_what_fits(self) -> None:
        while self._waiting:
            number, call = next(iter(self._waiting.items()))
            if not self._allowance.take(len(call.data)):
                return
            del self._waiting[number]
            self._send_call(call)

    def _send_call(self, call: WorkerFrame) -> None:
        self._send(call)


class LaneOfWaits(Lane):
    """A wait that is given up before it is sent is never sent."""

    def _drop_waiting(self, number: int) -> bool:
        del self._waiting[number]
        self._send_what_fits()
        return True


class LaneOfEvents(Lane):
    """Each event that was begun is sent, in its turn, and the job's end comes after them all."""

    def __init__(self, send: Callable[[WorkerFrame], None], allowance: Allowance) -> None:
        super().__init__(send, allowance)
        self._given_up: set[int] = set()
        self._end: WorkerFrame | None = None

    def end(self, frame: WorkerFrame) -> None:
        """Send the frame that ends the job, after the events that wait."""
        with self._lock:
            self._end = frame
            self._send_what_fits()

    def _drop_waiting(self, number: int) -> bool:
        self._given_up.add(number)
        return False

    def _send_call(self, call: WorkerFrame) -> None:
        self._send(call)
        if call.call in self._given_up:
            self._given_up.remove(call.call)
            self._send(WorkerFrame("drop", call.call))

    def _send_what_fits(self) -> None:
        super()._send_what_fits()
        if self._end is not None and not self._waiting:
            self._send(self._end)
            self._end = None
