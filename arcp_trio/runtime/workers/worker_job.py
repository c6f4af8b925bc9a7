"""The runtime's side of one job in a worker: its calls are carried out at the job's desk."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Final, TypeAlias, cast

import attrs
import trio

from arcp_trio.runtime.credentials.credential import Credential
from arcp_trio.runtime.job.blocking import AgentCancelled
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.job_view import facts_for_agent
from arcp_trio.runtime.job.loop_carrier import IN_ORDER
from arcp_trio.runtime.workers.allowance import MOST_EVENTS, Allowance, most_waits
from arcp_trio.runtime.workers.messages import (
    FAILURES,
    FRAME_ALLOWANCE,
    SPENT,
    AgentCall,
    ErrorInProcess,
    WorkerFrame,
    error_data,
    error_of,
    exact_value_of,
    value_data,
    value_of,
)
from arcp_trio.runtime.workers.places import Stay
from arcp_trio.runtime.workers.wire import Wire, WorkerLost
from arcp_trio.store.errors import Fenced
from arcp_trio.wire.json import JsonLike, JsonValue, list_in, object_in

_Operation: TypeAlias = Callable[..., Any]

_GIVEN_UP: Final = error_data(AgentCancelled())

_AT_ONCE: Final[Sequence[_Operation]] = (
    *(
        Desk.approved,
        Desk.authorize,
        Desk.budget,
        Desk.credentials,
        Desk.grace,
        Desk.limits,
        Desk.sends_chunks,
    ),
    *(Desk.fail_call, Desk.leave_result, Desk.summarize),
    *(Desk.finish_step, Desk.fail_step, Desk.finish_tool, Desk.fail_tool),
)
_WITH_A_WAIT: Final[Sequence[_Operation]] = (
    *(Desk.open, Desk.delegate, Desk.child_result, Desk.authorize_or_ask),
    *(Desk.rotate, Desk.ask, Desk.ask_approval, Desk.decision, Desk.over),
    *(Desk.begin_step, Desk.memos_kept, Desk.pause, Desk.sleep, Desk.keep, Desk.kept),
)
_ALL: Final[Sequence[_Operation]] = (*_AT_ONCE, *_WITH_A_WAIT, *IN_ORDER)
OPERATIONS: Final[Mapping[str, _Operation]] = {each.__name__: each for each in _ALL}
"""What a worker may ask for, by name."""


@attrs.frozen(eq=False)
class _Pending:
    """A call that has no answer yet, and that others do not wait for."""

    operation: _Operation
    frame: WorkerFrame
    allowance: Allowance
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


class WorkerJob:
    """One job, and the worker that does it.

    What the worker sends is read at all times, whatever its calls wait for. A worker that does not
    keep to the allowance of its job is lost.
    """

    def __init__(self, desk: Desk, wire: Wire, stay: Stay) -> None:
        self._desk = desk
        self._wire = wire
        self._stay = stay
        limits = desk.job.core.limits
        self._most_bytes = limits.frame_bytes_in
        self._most_waits = most_waits(limits)
        self._calls: dict[int, _Pending] = {}
        self._events = Allowance(MOST_EVENTS, self._most_bytes)
        self._waits = Allowance(self._most_waits, self._most_bytes)
        self._answering = trio.StrictFIFOLock()
        # No more than their allowance.
        self._to_do, self._in_order = trio.open_memory_channel[_Pending](math.inf)

    async def run(self) -> WorkerFrame:
        """Have the worker do the job, and return the frame by which it ended it.

        A worker that does not read the answers to its calls is spent.

        Raises:
            WorkerLost: the worker ended before the job did.
        """
        job = self._desk.job
        agent, deadline = job.agent, job.agent_run.deadline
        call = AgentCall(
            facts=facts_for_agent(job),
            loop=agent.loop,
            seconds=None if deadline is None else deadline - trio.current_time(),
            most_bytes=self._most_bytes,
            most_waits=self._most_waits,
        )
        await self._wire.send(WorkerFrame("job", name=agent.importable or "", data=call.data()))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._carry_out_in_order, name="events for a worker")
            with self._to_do:
                try:
                    frame = await self._take_calls(nursery)
                except WorkerLost:
                    self._desk.leave_run()  # before the calls are given up
                    raise
            # They end as they do when the agent gives them up: an event is still emitted.
            for each in self._calls.values():
                each.scope.cancel(reason="the agent has ended")
            nursery.cancel_scope.deadline = trio.current_time() + self._desk.grace()
        if nursery.cancel_scope.cancelled_caught:
            frame.name = SPENT
            await self._emit_the_rest()
        return frame

    async def _emit_the_rest(self) -> None:
        """Emit what the agent has said and has had no answer to in time."""
        async for call in self._in_order:
            with call.scope:
                await self._answer(call.operation, call.frame)

    async def cancel(self) -> None:
        """Tell the worker that the job is to end."""
        with suppress(WorkerLost):
            await self._wire.send(WorkerFrame("cancel"))

    async def _take_calls(self, nursery: trio.Nursery) -> WorkerFrame:
        """Begin the worker's calls, and return the frame by which it ends the job."""
        most_bytes = self._most_bytes + FRAME_ALLOWANCE
        while (frame := await self._wire.receive(most_bytes)).kind not in ("end", "error"):
            if frame.kind == "drop":
                if (call := self._calls.get(frame.call)) is not None:
                    call.scope.cancel(reason="the agent no longer waits for it")
            elif frame.call in self._calls:
                raise WorkerLost("the agent's process sent two calls with one number")
            elif frame.kind == "call" and (operation := OPERATIONS.get(frame.name)):
                if operation in _AT_ONCE:
                    await self._send(*await self._answer(operation, frame))
                else:
                    self._begin(operation, frame, nursery)
            else:
                raise WorkerLost("the agent's process sent what is not a call")
        return frame

    def _begin(self, operation: _Operation, frame: WorkerFrame, nursery: trio.Nursery) -> None:
        in_order = operation in IN_ORDER
        allowance = self._events if in_order else self._waits
        if not allowance.take(len(frame.data)):
            raise WorkerLost("the agent's process has too many calls without an answer")
        # From here on the agent may say that it no longer waits for it.
        call = self._calls[frame.call] = _Pending(operation, frame, allowance)
        if in_order:
            self._to_do.send_nowait(call)
        else:
            nursery.start_soon(self._carry_out, call, name=f"{frame.name} for a worker")

    async def _carry_out_in_order(self) -> None:
        async for call in self._in_order:
            await self._carry_out(call)

    async def _carry_out(self, call: _Pending) -> None:
        """Carry a call out, and answer it, also if the agent has given it up."""
        number = call.frame.call
        answer, descriptor = WorkerFrame("failed", number, data=_GIVEN_UP), None
        with call.scope:
            answer, descriptor = await self._answer(call.operation, call.frame)
        with _closing(descriptor):
            async with self._answering:
                # The worker may begin another call once it has the answer, so this comes before.
                del self._calls[number]
                call.allowance.give_back(len(call.frame.data))
                await self._send(answer, descriptor)

    async def _answer(
        self, operation: _Operation, frame: WorkerFrame
    ) -> tuple[WorkerFrame, int | None]:
        """Carry out an operation, and return the answer, with the descriptor of a file."""
        try:
            arguments = _arguments(frame)
            waiting = operation is Desk.child_result
            with self._stay.awaits(str(arguments[0])) if waiting else nullcontext():
                value = operation(self._desk, *arguments)
                if inspect.isawaitable(value):
                    value = await value
            if operation is Desk.open:
                return WorkerFrame("file", frame.call), value
            if isinstance(value, bytes):
                return WorkerFrame("bytes", frame.call, data=value), None
            return WorkerFrame("reply", frame.call, frame.name, value_data(_plain(value))), None
        except Fenced:
            await trio.sleep_forever()  # until this node ends, and the job goes on at another
        except Exception as error:  # noqa: BLE001 - raised in the worker
            return WorkerFrame("failed", frame.call, data=error_data(error)), None

    async def _send(self, answer: WorkerFrame, descriptor: int | None) -> None:
        with suppress(WorkerLost):  # the reader notices it, too
            await self._wire.send(answer, descriptor)


@contextmanager
def _closing(descriptor: int | None) -> Generator[None]:
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _plain(value: object) -> JsonLike:
    """Return what an operation returned, as JSON."""
    if isinstance(value, Credential):
        return value.wire()
    if isinstance(value, list):
        return [_plain(each) for each in cast("list[object]", value)]
    return cast("JsonLike", value)


def _arguments(frame: WorkerFrame) -> Sequence[object]:
    if frame.name == Desk.write_result.__name__:
        author, _, written = frame.data.partition(b"\0")
        return [written, author.decode()]
    if frame.name == Desk.emit.__name__:
        return list_in(exact_value_of(frame.data))
    arguments = list_in(value_of(frame.data))
    if frame.name in FAILURES:
        *named, error = arguments
        return [*named, error_of(str(error).encode())]
    return arguments


def result_of_worker(frame: WorkerFrame) -> JsonValue:
    """Return what an agent in a worker returned, or raise what it raised."""
    if frame.kind == "end":
        return value_of(frame.data)
    error = error_of(frame.data)
    trace = object_in(value_of(frame.data)).get("trace")
    if trace is None:
        raise error
    raise ErrorInProcess(trace) from error
