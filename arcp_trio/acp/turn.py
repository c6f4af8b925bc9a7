"""One prompt, and what the agent says until it has answered it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Final, Protocol, Self

import trio
from attrs import frozen

from arcp_trio.acp.errors import INTERNAL_ERROR, AcpFailure, AgentError, TimedOut
from arcp_trio.acp.requests import Request
from arcp_trio.acp.updates import Update
from arcp_trio.wire.json import JsonValue, object_in


class Prompted(Protocol):
    """The session's queue, as its turn knows it."""

    def cancel(self) -> None:
        """Have the agent end the turn."""
        ...

    def leave_room(self, size: int) -> None:
        """Make room for more to be read."""
        ...

    def check_place(self) -> None:
        """Raise `RuntimeError` in an update handler of this session."""
        ...


@frozen
class _Waiting:
    """Something that the program has not taken yet, and the size of its line."""

    what: Update | Request
    size: int


class Turn:
    """What the agent says between a prompt and the answer to it, in order.

    Iterate over it for the updates, and for the requests that are to be seen in the stream. Await
    it for the stop reason alone. In `async with`, leaving the block early cancels the turn.
    """

    def __init__(self, queue: Prompted, arrivals: int, cancel_seconds: float) -> None:
        self.arrivals: Final = arrivals
        """How many reads there had been when the prompt was sent: it cannot concern their lines."""
        self.answered: Final = trio.Event()
        """Set when the reader meets the answer."""
        self.stopping = False
        """Whether the agent has been told to end the turn."""
        self._queue = queue
        self._cancel_seconds = cancel_seconds
        self._waiting: deque[_Waiting] = deque()
        self._changed = trio.lowlevel.ParkingLot()
        self._dropping = False
        self._over = False
        self._stop_reason: str | None = None
        self._failure: AcpFailure | None = None

    @property
    def over(self) -> bool:
        """Whether the agent has answered, or has ended, and everything before that was taken."""
        return self._over and not self._waiting

    @property
    def ended(self) -> bool:
        """Whether everything that the turn brings is known; some of it may not be taken yet."""
        return self._over

    @property
    def stop_reason(self) -> str | None:
        """Why the agent has ended the turn; None before, and if the turn has failed."""
        return self._stop_reason

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update | Request:
        """Return the next item.

        Raises:
            AcpFailure: what the turn has ended with, in place of a stop reason.
        """
        self._queue.check_place()
        await trio.lowlevel.checkpoint()
        while True:
            item = self.ready()
            if item is not None:
                return item
            if self._over:
                if self._failure is not None:
                    raise self._failure
                raise StopAsyncIteration
            await self._changed.park()

    def ready(self) -> Update | Request | None:
        """Return the next item if there is one already, else None."""
        if not self._waiting:
            return None
        item = self._waiting.popleft()
        self._queue.leave_room(item.size)
        return item.what

    def __await__(self) -> Generator[object, None, str]:
        return self._finish().__await__()

    async def _finish(self) -> str:
        async for item in self:
            if isinstance(item, Request):
                item.give_up()
        assert self._stop_reason is not None, "a turn without one raises its failure"
        return self._stop_reason

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.over:
            self.stop()
            self._drop()

    def stop(self) -> None:
        """Have the agent end the turn; what it still says can be read."""
        if not (self.stopping or self.answered.is_set()):
            self.stopping = True
            self._queue.cancel()

    async def cancel(self) -> None:
        """Have the agent end the turn, drop what it still says, and wait for its answer.

        Raises:
            TimedOut: the agent does not answer in time.
        """
        self._queue.check_place()
        self.stop()
        self._drop()
        with trio.move_on_after(self._cancel_seconds):
            await self.answered.wait()
        if not self.answered.is_set():
            raise TimedOut("the agent has not ended its turn in time")
        await self._finish()

    def _drop(self) -> None:
        self._dropping = True
        while (item := self.ready()) is not None:
            if isinstance(item, Request):
                item.give_up()

    # -- for the queue

    def put(self, what: Update | Request, size: int) -> bool:
        """Take something up for the program, unless it wants nothing more."""
        if self._dropping:
            return False
        self._waiting.append(_Waiting(what, size))
        self._changed.unpark_all()
        return True

    def end(self, result: Callable[[], JsonValue]) -> None:
        """End with an answer, all of what came before it having been put."""
        self._over = True
        try:
            reason = object_in(result()).get("stopReason")
        except AcpFailure as failure:
            self._failure = failure
        else:
            if isinstance(reason, str):
                self._stop_reason = reason
            else:
                words = "the agent has ended its turn without a stop reason"
                self._failure = AgentError(INTERNAL_ERROR, words)
        self._changed.unpark_all()
