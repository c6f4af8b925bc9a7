"""The runtime's side of one job in a worker: its calls are carried out at the job's desk."""

from __future__ import annotations

import inspect
import logging
import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias, cast

import trio

from arcp_trio.runtime.credentials.credential import Credential
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.job_view import facts_for_agent
from arcp_trio.runtime.job.loop_carrier import IN_ORDER
from arcp_trio.runtime.workers.messages import (
    FAILURES,
    FRAME_ALLOWANCE,
    AgentCall,
    ErrorInProcess,
    Unpacker,
    WorkerFrame,
    error_data,
    error_of,
    exact_value_of,
    packed,
    value_data,
    value_of,
)
from arcp_trio.wire.json import JsonLike, JsonValue, list_in, object_in

log = logging.getLogger(__name__)

MOST_CALLS: Final = 64
"""Calls of one worker that are being carried out; past it the next one waits to be read."""

_Operation: TypeAlias = Callable[..., Any]

_READ_BYTES: Final = 64 * 1024
FRAMES_A_TURN: Final = 64
"""Frames of a worker that are looked at before others have a turn."""

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
    *(Desk.open, Desk.delegate, Desk.child_result),
    *(Desk.rotate, Desk.ask, Desk.ask_approval, Desk.decision, Desk.over),
    *(Desk.begin_step, Desk.memos_kept, Desk.pause, Desk.sleep, Desk.keep, Desk.kept),
)
_ALL: Final[Sequence[_Operation]] = (*_AT_ONCE, *_WITH_A_WAIT, *IN_ORDER)
OPERATIONS: Final[Mapping[str, _Operation]] = {each.__name__: each for each in _ALL}
"""What a worker may ask for, by name."""


class WorkerLost(Exception):  # noqa: N818 - what happened to the worker
    """The worker has ended, or has sent what is not a frame."""


class Wire:
    """The runtime's end of the socket to a worker."""

    def __init__(self, socket: trio.socket.SocketType) -> None:
        self._socket = socket
        self._sending = trio.StrictFIFOLock()
        self._received = 0
        """Frames since the last checkpoint."""

    async def send(self, frame: WorkerFrame, descriptor: int | None = None) -> None:
        """Send a frame, with a descriptor if it has one.

        Raises:
            WorkerLost: the worker has ended.
        """
        data = memoryview(packed(frame))
        rights: list[tuple[int, int, array[int]]] = []
        if descriptor is not None:
            rights = [(trio.socket.SOL_SOCKET, trio.socket.SCM_RIGHTS, array("i", [descriptor]))]
        # Without a shield: a frame that is cut off belongs to a job that is over.
        async with self._sending:
            try:
                sent = await self._socket.sendmsg([data], rights)
                while sent < len(data):
                    sent += await self._socket.send(data[sent:])
            except OSError as error:
                raise WorkerLost("the agent's process ended") from error

    async def receive(self, unpacker: Unpacker) -> WorkerFrame:
        """Return the next frame.

        Raises:
            WorkerLost: the worker has ended, or has sent what is not a frame.
        """
        try:
            while (frame := unpacker.next()) is None:
                # Not recvmsg: descriptors that a worker might send are not taken.
                data = await self._socket.recv(_READ_BYTES)
                self._received = 0
                if not data:
                    raise WorkerLost("the agent's process ended")
                unpacker.feed(data)
        except OSError as error:
            raise WorkerLost("the agent's process ended") from error
        except ValueError as error:
            raise WorkerLost(f"the agent's process sent {error}") from error
        self._received += 1
        if self._received >= FRAMES_A_TURN:
            self._received = 0
            await trio.lowlevel.checkpoint()
        return frame

    def close(self) -> None:
        """Close the socket: a worker that is idle ends."""
        self._socket.close()


class WorkerJob:
    """One job, and the worker that does it."""

    def __init__(self, desk: Desk, wire: Wire) -> None:
        self._desk = desk
        self._wire = wire
        self._most_bytes = desk.job.core.limits.frame_bytes_in
        self._scopes: dict[int, trio.CancelScope] = {}
        self._room = trio.Semaphore(MOST_CALLS)

    async def run(self) -> WorkerFrame:
        """Have the worker do the job, and return the frame by which it ended it.

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
        )
        await self._wire.send(WorkerFrame("job", name=agent.importable or "", data=call.data()))
        unpacker = Unpacker(self._most_bytes + FRAME_ALLOWANCE)
        async with trio.open_nursery() as nursery:
            while True:
                frame = await self._wire.receive(unpacker)
                if frame.kind in ("end", "error"):
                    break
                if frame.kind == "drop":
                    if (scope := self._scopes.get(frame.call)) is not None:
                        scope.cancel(reason="the agent no longer waits for it")
                elif frame.call in self._scopes:
                    raise WorkerLost("the agent's process sent two calls with one number")
                elif frame.kind == "call" and (operation := OPERATIONS.get(frame.name)):
                    if operation in _WITH_A_WAIT:
                        await self._room.acquire()
                        # From here on the agent may say that it no longer waits for it.
                        scope = self._scopes[frame.call] = trio.CancelScope()
                        carry_out = partial(self._carry_out_beside, operation, frame, scope)
                        nursery.start_soon(carry_out, name=f"{frame.name} for a worker")
                    else:
                        await self._carry_out(operation, frame)
                else:
                    raise WorkerLost("the agent's process sent what is not a call")
            nursery.cancel_scope.cancel(reason="the agent has ended")
        return frame

    async def cancel(self) -> None:
        """Tell the worker that the job is to end."""
        with suppress(WorkerLost):
            await self._wire.send(WorkerFrame("cancel"))

    async def _carry_out_beside(
        self, operation: _Operation, frame: WorkerFrame, scope: trio.CancelScope
    ) -> None:
        try:
            with scope:
                await self._carry_out(operation, frame)
        finally:
            del self._scopes[frame.call]
            self._room.release()

    async def _carry_out(self, operation: _Operation, frame: WorkerFrame) -> None:
        descriptor: int | None = None
        try:
            value = operation(self._desk, *_arguments(frame))
            if inspect.isawaitable(value):
                value = await value
            if operation is Desk.open:
                descriptor = value
                answer = WorkerFrame("file", frame.call)
            elif isinstance(value, bytes):
                answer = WorkerFrame("bytes", frame.call, data=value)
            else:
                answer = WorkerFrame("reply", frame.call, frame.name, value_data(_plain(value)))
        except Exception as error:  # noqa: BLE001 - raised in the worker
            answer = WorkerFrame("failed", frame.call, data=error_data(error))
        try:
            with suppress(WorkerLost):  # the reader notices it, too
                await self._wire.send(answer, descriptor)
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
        return [frame.data]
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
