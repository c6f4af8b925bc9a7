"""The agent's own tool calls: told once each, with what it tells of them bit by bit."""

from __future__ import annotations

from typing import Final

import attrs

from arcp_trio import acp
from arcp_trio.proxies.acp.allowed import AllowedEdits
from arcp_trio.proxies.acp.calls import Calls
from arcp_trio.proxies.acp.named import digest_of, paths_beside, title_of, tool_of
from arcp_trio.runtime.job.context import JobContext
from arcp_trio.runtime.job.fitting import MOST_NAME, Fitted, fitted, room
from arcp_trio.wire.errors import InternalError, JobCancelled
from arcp_trio.wire.json import JsonObject, JsonValue, is_list, is_object, text_in

MOST_CALLS: Final = 100_000
"""Calls of one job that are told; it has to be known which of them have ended."""
MOST_OPEN: Final = 1_000
"""Calls of one job that have not ended; past it the oldest is given up."""
MOST_KEPT_BYTES: Final = 16 * 1024 * 1024
"""What is kept of calls that have not ended, for their results."""

_SHOWN: Final = ("title", "kind", "name", "status", "content", "locations", "rawInput", "rawOutput")
_WORDS: Final = ("text", "message", "error", "content")
"""The fields of a result in which its words are."""
_LARGE: Final = ("content", "rawInput", "rawOutput")


@attrs.define(eq=False)
class _OpenToolCall:
    """What is known of a call that has not ended."""

    call_id: str
    named: bytes
    """The digest of the agent's own id for it."""
    fields: dict[str, Fitted] = attrs.field(factory=dict[str, Fitted])

    def size(self) -> int:
        return sum(each.size for each in self.fields.values())

    @property
    def known(self) -> JsonObject:
        return {name: each.value for name, each in self.fields.items()}

    def text(self, name: str) -> str | None:
        found = self.fields.get(name)
        return None if found is None else text_in(found.value)


class AgentToolCalls:
    """The tool calls that an agent tells of."""

    def __init__(self, job: JobContext, calls: Calls, edits: AllowedEdits) -> None:
        self._job = job
        self._calls = calls
        self._edits = edits
        self._room: Final = room(job.limits)
        self._open: dict[str, _OpenToolCall] = {}
        self._kept = 0
        """Bytes of what is kept of open calls."""
        self._known: set[bytes] = set()
        """Digests of the ids of all calls that were told of."""

    async def take(self, update: acp.ToolCall) -> bool:
        """Tell what an update says of a call; return whether there are too many calls for that.

        Raises:
            ValueError: the update does not name its call.
        """
        if not update.id:
            raise ValueError("a tool call without an id")
        call_id = update.id if len(update.id) <= MOST_NAME else f"call_{digest_of(update.id).hex()}"
        call = self._open.get(call_id)
        if call is None:
            if digest_of(call_id) in self._known:
                return True  # the call has ended
            if len(self._known) >= MOST_CALLS:
                return False
            await self._begin(call_id, digest_of(update.id), update.raw)
        else:
            await self._change(call, update.raw)
        return True

    async def _begin(self, call_id: str, named: bytes, raw: JsonObject) -> None:
        if len(self._open) >= MOST_OPEN:
            await self._give_up(next(iter(self._open.values())))
        self._known.add(digest_of(call_id))
        call = self._open[call_id] = _OpenToolCall(call_id, named)
        self._keep(call, raw)
        args = raw.get("rawInput") or {"title": (title_of(raw) or "")[:MOST_NAME]}
        await self._calls.begin(tool_of(raw), args, call_id)
        await self._end_if_over(call)

    async def _change(self, call: _OpenToolCall, raw: JsonObject) -> None:
        changed = self._keep(call, raw)
        if not await self._end_if_over(call) and changed:
            title, status = title_of(call.known), call.text("status")
            body: JsonObject = {"phase": "tool", "call_id": call.call_id}
            body |= {"message": title[:MOST_NAME]} if title else {}
            body |= {"status": status[:MOST_NAME]} if status else {}
            if "rawInput" in changed:
                args = fitted(raw["rawInput"], self._room)
                body |= {"args": args.value, **args.note}
            await self._job.emit("status", body)

    def _keep(self, call: _OpenToolCall, raw: JsonObject) -> list[str]:
        """Keep what an update says, and return the names of the fields that have changed."""
        changed: list[str] = []
        before = call.size()
        for name in _SHOWN:
            if raw.get(name) is None:
                continue
            left = MOST_KEPT_BYTES - self._kept if name in _LARGE else 2 * MOST_NAME
            kept = fitted(raw[name], max(min(self._room, left), 64))
            if call.fields.get(name) != kept:
                changed.append(name)
                call.fields[name] = kept
        self._kept += call.size() - before
        return changed

    async def _end_if_over(self, call: _OpenToolCall) -> bool:
        status = call.text("status")
        if status not in ("completed", "failed"):
            return False
        self._forget(call)
        nothing = Fitted(None, 0, truncated=False)
        content = call.fields.get("content", nothing)
        output = call.fields.get("rawOutput", content)
        failure = None
        if status == "completed":
            await self._calls.end(call.call_id, output.value, truncated=output.truncated)
        else:
            failure = _words(content.value) or _words(output.value) or "the tool call has failed"
            await self._calls.fail(call.call_id, InternalError(failure[: 10 * MOST_NAME]))
        paths = paths_beside(call.known)
        await self._edits.ended(call.named, call.text("kind"), paths, failure)
        return True

    async def _give_up(self, call: _OpenToolCall) -> None:
        self._forget(call)
        await self._calls.fail(call.call_id, JobCancelled("too many calls have not ended"))

    def _forget(self, call: _OpenToolCall) -> None:
        del self._open[call.call_id]
        self._kept -= call.size()


def _words(value: JsonValue) -> str:
    """Return the text in a result: as it is, in an error, or in blocks of content."""
    if isinstance(value, str):
        return value
    if is_list(value):
        return "\n".join(filter(None, map(_words, value)))
    if is_object(value):
        return next(filter(None, (_words(value.get(name)) for name in _WORDS)), "")
    return ""
