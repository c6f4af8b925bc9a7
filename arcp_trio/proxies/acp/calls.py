"""The tool calls of a job, each of which is told and ended once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from arcp_trio.runtime.job.fitting import MOST_NAME, fitted, room
from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonObject, JsonValue

if TYPE_CHECKING:
    from arcp_trio.runtime.job.context import JobContext


class Calls:
    """Emits `tool_call` and `tool_result` in pairs.

    What is too large for an event is shortened. The runtime ends the calls that are open when the
    job ends.

    Cancellation: an event is emitted before the wait that is cancelled.
    """

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._room: Final = room(job.limits)
        self._open: set[str] = set()

    async def begin(self, tool: str, args: JsonValue, call_id: str | None = None) -> str:
        """Tell of a call, and return its id.

        Args:
            call_id: the id, for a call that the agent has given one; it was never used before.
        """
        call_id = call_id or new_id("call_")
        cut = fitted(args, self._room)
        self._open.add(call_id)
        body = {"tool": tool[:MOST_NAME], "call_id": call_id, "args": cut.value, **cut.note}
        try:
            await self._job.emit("tool_call", body)
        except ArcpError:  # it was not told
            self._open.remove(call_id)
            raise
        return call_id

    async def end(self, call_id: str, result: JsonValue, *, truncated: bool = False) -> None:
        """End a call with its result, unless it has ended.

        Args:
            truncated: the result is shortened already.
        """
        cut = fitted(result, self._room)
        note: JsonObject = {"truncated": True} if truncated or cut.truncated else {}
        await self._end(call_id, {"result": cut.value, **note})

    async def fail(self, call_id: str, error: ArcpError) -> None:
        """End a call with an error, unless it has ended."""
        cut = fitted(error.payload(), self._room)
        await self._end(call_id, {"error": cut.value, **cut.note})

    async def _end(self, call_id: str, outcome: JsonObject) -> None:
        if call_id in self._open:
            self._open.remove(call_id)
            await self._job.emit("tool_result", {"call_id": call_id, **outcome})
