"""The worker's end of the back-pressure: calls wait in the worker until there is room for them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from arcp_trio.runtime.workers.messages import WorkerFrame
from arcp_trio.runtime.workers.room import Room


class Lane:
    """A job's calls of one kind: sends them in turn, as room allows. For any thread."""

    def __init__(self, send: Callable[[WorkerFrame], None], most_bytes: int) -> None:
        self._send = send
        self._room = Room(most_bytes)
        self._lock = threading.Lock()
        self._waiting: OrderedDict[int, WorkerFrame] = OrderedDict()

    def begin(self, call: WorkerFrame) -> None:
        """Send a call, or have it wait for room."""
        with self._lock:
            self._waiting[call.call] = call
            self._send_what_fits()

    def drop(self, number: int) -> bool:
        """Give up a call that has no answer yet; return whether none will come."""
        with self._lock:
            if self._waiting.pop(number, None) is None:
                self._send(WorkerFrame("drop", number))
                return False
            self._send_what_fits()
            return True

    def answered(self, size: int) -> None:
        """Take note of the answer to a call of this size."""
        with self._lock:
            self._room.give_back(size)
            self._send_what_fits()

    def _send_what_fits(self) -> None:
        while self._waiting:
            number, call = next(iter(self._waiting.items()))
            if not self._room.take(len(call.data)):
                return
            del self._waiting[number]
            self._send(call)
