"""A tool call as two events: `tool_call`, and `tool_result` with its result or error (§8.2)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from arcp_trio.groups import unwrapped
from arcp_trio.runtime.job.events import add_event, give_way
from arcp_trio.runtime.job.outcome import sound_copy
from arcp_trio.runtime.tracing import NO_SPAN, Span
from arcp_trio.wire.errors import CODES, ArcpError, InternalError, JobCancelled
from arcp_trio.wire.events import InvalidEvent
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import Json

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

ERROR_ALLOWANCE: Final = 256
"""Bytes of an event's payload around the error in it, at most."""


class ToolCall:
    """The block around a tool's call. Set `result`; an exception becomes the call's error."""

    def __init__(self, job: Job, tool: str, args: Json) -> None:
        self.id = new_id("call_")
        self.result: Json = None
        self._job = job
        self._tool = tool
        self._args = args
        self._span: Span = NO_SPAN
        self._current: AbstractContextManager[object] = nullcontext()

    async def __aenter__(self) -> Self:
        job = self._job
        add_event(job, "tool_call", {"tool": self._tool, "call_id": self.id, "args": self._args})
        named = {"arcp.tool.name": self._tool, "arcp.tool.call_id": self.id}
        self._span = job.span.start(f"tool {self._tool}", named)
        try:
            await give_way(job)
            # After the event, and with nothing to wait for between the check and the call (§9.3).
            job.authorize("tool.call", self._tool)
        except BaseException as error:
            self._fail(error)
            raise
        self._current = self._span.current()
        self._current.__enter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._current.__exit__(None, None, None)
        if error is not None:
            self._fail(error)
            return
        try:
            add_event(self._job, "tool_result", {"call_id": self.id, "result": self.result})
        except (InvalidEvent, ArcpError) as unfit:
            self._fail(unfit)
            raise
        self._span.end({})
        await give_way(self._job)  # noqa: ASYNC102 - no exception is leaving the block

    def _fail(self, error: BaseException) -> None:
        """End the call with an error, with no checkpoint: the task may be cancelled."""
        told = self._told(error)
        self._span.end({}, code=told.code)
        if not self._job.ended:
            add_event(self._job, "tool_result", {"call_id": self.id, "error": told.payload()})

    def _told(self, error: BaseException) -> ArcpError:
        """Return what the client may read: the text of an exception may hold secrets (§12)."""
        error = unwrapped(error)
        if isinstance(error, ArcpError) and error.code in CODES:
            sound = self._sound(error)
            if sound is not None:
                return sound
        if isinstance(error, InvalidEvent):
            return InternalError("the tool's result cannot be sent")
        if isinstance(error, Exception):
            known = self._job.explained(error)
            sound = None if known is None else self._sound(known)
            return sound or InternalError("the tool call failed")
        return JobCancelled("the tool call was given up")

    def _sound(self, error: ArcpError) -> ArcpError | None:
        return sound_copy(error, self._job.most_payload_bytes - ERROR_ALLOWANCE)
