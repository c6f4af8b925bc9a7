"""How a context reaches its job: directly, or from another thread or process."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, TypeVarTuple, cast

import trio

from arcp_trio.runtime.job.desk import Desk
from arcp_trio.store.errors import Fenced

if TYPE_CHECKING:
    from arcp_trio.runtime.job.awaiting import AwaitedCall

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class Link(Protocol):
    """An agent's way to its job's desk, wherever the agent runs."""

    not_begun: dict[AwaitedCall[Any], str]
    """Calls that the agent has made and that nobody awaits yet, with their names."""

    async def do(self, operation: Callable[[Desk, *_Ts], Awaitable[_T]], *args: *_Ts) -> _T:
        """Have an operation carried out, and wait for it; the job can be cancelled here."""
        ...

    def ask(self, operation: Callable[[Desk, *_Ts], _T], *args: *_Ts) -> _T:
        """Have an operation carried out that waits for nothing."""
        ...

    def span(self, call_id: str) -> AbstractContextManager[object]:
        """Return the block in which a tool call's span is the current one."""
        ...

    def task(self) -> object:
        """Return what stands for the task that calls this, as the agent's loop has it."""
        ...


class DirectLink:
    """The link of an agent that runs in the runtime's own loop."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.not_begun: dict[AwaitedCall[Any], str] = {}

    async def do(self, operation: Callable[[Desk, *_Ts], Awaitable[_T]], *args: *_Ts) -> _T:
        """Have an operation carried out, and wait for it."""
        try:
            return await operation(self.desk, *args)
        except Fenced:
            await trio.sleep_forever()  # until this node ends, and the job goes on at another

    def ask(self, operation: Callable[[Desk, *_Ts], _T], *args: *_Ts) -> _T:
        """Have an operation carried out that waits for nothing."""
        return operation(self.desk, *args)

    def span(self, call_id: str) -> AbstractContextManager[object]:
        """Return the block in which a tool call's span is the current one."""
        return self.desk.span(call_id)

    def task(self) -> object:
        """Return the task that calls this."""
        return trio.lowlevel.current_task()


class Carrier(Protocol):
    """Carries operations to a desk that is elsewhere, from any thread."""

    def start(self, operation: Callable[[Desk, *_Ts], Awaitable[_T]], *args: *_Ts) -> Future[_T]:
        """Begin an operation; cancelling the future ends its wait."""
        ...

    def ask(self, operation: Callable[[Desk, *_Ts], _T], *args: *_Ts) -> _T:
        """Have an operation carried out that waits for nothing, and block until it is done."""
        ...

    def span(self, call_id: str) -> AbstractContextManager[object]:
        """Return the block in which a tool call's span is the current one."""
        ...


class DistantLink(ABC):
    """A link by way of a carrier. Its kinds differ in how they wait for a future."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self.not_begun: dict[AwaitedCall[Any], str] = {}

    @abstractmethod
    async def _wait(self, future: Future[_T]) -> _T: ...

    @abstractmethod
    def task(self) -> object:
        """Return what stands for the task that calls this."""

    async def do(self, operation: Callable[[Desk, *_Ts], Awaitable[_T]], *args: *_Ts) -> _T:
        """Have an operation carried out, and wait for it; a wait that is cut off opens no file."""
        future = self._carrier.start(operation, *args)
        try:
            return await self._wait(future)
        except BaseException:
            if cast("object", operation) is Desk.open:
                future.add_done_callback(_close_unused)  # the file may have come just now
            raise

    def ask(self, operation: Callable[[Desk, *_Ts], _T], *args: *_Ts) -> _T:
        """Have an operation carried out that waits for nothing."""
        return self._carrier.ask(operation, *args)

    def span(self, call_id: str) -> AbstractContextManager[object]:
        """Return the block in which a tool call's span is the current one."""
        return self._carrier.span(call_id)


def _close_unused(opened: Future[Any]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        os.close(opened.result())
