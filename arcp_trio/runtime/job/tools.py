"""A tool call as two events: `tool_call`, and `tool_result` with its result or error (§8.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from arcp_trio.groups import unwrapped
from arcp_trio.runtime.job.durable.places import Telling
from arcp_trio.runtime.job.events import add_event, give_way
from arcp_trio.runtime.job.outcome import sound_copy
from arcp_trio.runtime.job.provisioning import explained
from arcp_trio.runtime.tracing import NO_SPAN, Span
from arcp_trio.wire.errors import CODES, ArcpError, InternalError, JobCancelled
from arcp_trio.wire.events import InvalidEvent
from arcp_trio.wire.json import JsonLike

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

ERROR_ALLOWANCE: Final = 256
"""Bytes of an event's payload around the error in it, at most."""


class OpenCall:
    """A tool call of a job, from its event to its result."""

    def __init__(self, job: Job, call_id: str, telling: Telling = Telling.ALWAYS) -> None:
        self.id = call_id
        self.span: Span = NO_SPAN
        self._job = job
        self._telling = telling

    def announce(self, tool: str, args: JsonLike) -> None:
        """Emit `tool_call`."""
        body: dict[str, JsonLike] = {"tool": tool, "call_id": self.id, "args": args}
        add_event(self._job, "tool_call", body, self._telling)
        self.go_on(tool)

    def go_on(self, tool: str) -> None:
        """Begin the span of a call whose `tool_call` was emitted."""
        named = {"arcp.tool.name": tool, "arcp.tool.call_id": self.id}
        self.span = self._job.span.start(f"tool {tool}", named)

    async def check(self, tool: str) -> None:
        """Return if the lease allows the call, which is to be made at once.

        Raises:
            LeaseExpired, BudgetExhausted, PermissionDenied: the lease does not allow it.
        """
        await give_way(self._job)
        # After the event, and with nothing to wait for between the check and the call (§9.3).
        self._job.authorize("tool.call", tool)

    async def end(self, result: JsonLike) -> None:
        """End the call with its result, or with an error if the result cannot be sent."""
        try:
            self.finish(result)
        except (InvalidEvent, ArcpError) as unfit:
            self.fail(unfit)
            raise
        await give_way(self._job)

    def finish(self, result: JsonLike, *, to_remember: bool = False) -> None:
        """End the call with its result, in one step.

        Args:
            to_remember: the job is to remember the result, even if it is suspended.

        Raises:
            InvalidEvent, ArcpError: the result cannot be sent, and the call goes on.
        """
        body: dict[str, JsonLike] = {"call_id": self.id, "result": result}
        add_event(self._job, "tool_result", body, self._telling, to_remember=to_remember)
        self.span.end({})

    def fail(self, error: BaseException) -> None:
        """End the call with an error, with no checkpoint: the task may be cancelled."""
        told = self._told(error)
        self.span.end({}, code=told.code)
        if not self._job.ended:
            body: dict[str, JsonLike] = {"call_id": self.id, "error": told.payload()}
            add_event(self._job, "tool_result", body, self._telling)

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
            known = explained(self._job, error)
            sound = None if known is None else self._sound(known)
            return sound or InternalError("the tool call failed")
        return JobCancelled("the tool call was given up")

    def _sound(self, error: ArcpError) -> ArcpError | None:
        return sound_copy(error, self._job.most_payload_bytes - ERROR_ALLOWANCE)
