"""Carries what an agent in another thread asks into the runtime's loop."""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar, TypeVarTuple

import trio

from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.waits import Waits, fail
from arcp_trio.store.errors import Fenced

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

IN_ORDER: Final[frozenset[Callable[..., Awaitable[object]]]] = frozenset(
    {
        Desk.emit,
        Desk.begin_call,
        Desk.begin_tool,
        Desk.end_call,
        Desk.begin_result,
        Desk.write_result,
        Desk.end_result,
    }
)
"""Operations that add to the job's journal: one after the other, in the order of the calls."""


class LoopCarrier:
    """The carrier of one agent's thread. Made in the loop; `start` and `ask` are for threads."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._token = trio.lowlevel.current_trio_token()
        # Unbounded: each of the agent's own threads or tasks waits for the call that it has made.
        self._calls, self._taken = trio.open_memory_channel[_CarriedCall[Any]](math.inf)
        self._waits = Waits()

    async def carry(self) -> None:
        """Carry out calls until cancelled; then end those that wait, or that come later.

        An agent that has returned may have left threads of its own, which are not to wait for ever.
        What it has said is told, also if it did not wait for that.
        """
        try:
            async with trio.open_nursery() as nursery:
                async for call in self._taken:
                    if call.operation in IN_ORDER:
                        await call.carry_out()
                    else:
                        nursery.start_soon(
                            call.carry_out, name=f"{call.operation.__name__} for a thread"
                        )
        finally:
            self.cancel()
            while self._taken.statistics().current_buffer_used:
                call = self._taken.receive_nowait()
                if call.operation in IN_ORDER:
                    # The call is cancelled as soon as it waits for anything.
                    with trio.CancelScope(deadline=-math.inf, shield=True):
                        await call.carry_out()

    def cancel(self) -> None:
        """End each wait of the thread, and refuse to begin another, by `AgentCancelled`."""
        self._waits.cancel()

    # -- called by threads

    def start(self, operation: Callable[[Desk, *_Ts], Awaitable[_T]], *args: *_Ts) -> Future[_T]:
        """Begin an operation; cancelling the future ends its wait."""
        future: Future[_T] = Future()
        if not self._waits.add(future):
            return future
        run = partial(operation, self._desk, *args)
        try:
            self._token.run_sync_soon(
                self._calls.send_nowait, _CarriedCall(operation, run, future, self._token)
            )
        except trio.RunFinishedError:
            fail(future)
        return future

    def ask(self, operation: Callable[[Desk, *_Ts], _T], *args: *_Ts) -> _T:
        """Have an operation carried out that waits for nothing, and block until it is done.

        This works after the agent is cancelled, too: these operations do not look for cancellation.
        """
        future: Future[_T] = Future()

        def carry_out() -> None:
            try:
                future.set_result(operation(self._desk, *args))
            except Exception as error:  # noqa: BLE001 - raised in the thread
                future.set_exception(error)

        try:
            self._token.run_sync_soon(carry_out)
        except trio.RunFinishedError:
            fail(future)
        return future.result()

    def span(self, call_id: str) -> AbstractContextManager[object]:
        """Return the block in which a tool call's span is the current one."""
        return self._desk.span(call_id)


class _CarriedCall(Generic[_T]):
    """One operation on its way, in the loop."""

    def __init__(
        self,
        operation: Callable[..., Awaitable[_T]],
        run: Callable[[], Awaitable[_T]],
        future: Future[_T],
        token: trio.lowlevel.TrioToken,
    ) -> None:
        self.operation = operation
        self._run = run
        self._future = future
        self._token = token
        self._scope = trio.CancelScope()
        self._over = False

    async def carry_out(self) -> None:
        """Carry the operation out, and settle its future."""
        self._future.add_done_callback(self._mind_cancellation)
        with self._scope:
            try:
                value = await self._run()
            except Fenced:
                await trio.sleep_forever()  # until this node ends, and the job goes on at another
            except Exception as error:  # noqa: BLE001 - raised in the thread
                self._over = True
                with suppress(InvalidStateError):
                    self._future.set_exception(error)
            else:
                self._over = True
                try:
                    self._future.set_result(value)
                except InvalidStateError:  # nobody waits for it by now
                    if self.operation is Desk.open and isinstance(value, int):
                        os.close(value)

    def _mind_cancellation(self, _future: Future[_T]) -> None:
        if not self._over:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._scope.cancel)
