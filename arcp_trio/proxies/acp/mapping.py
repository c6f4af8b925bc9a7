"""What an agent tells of its work, as events of its job, in the same order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from arcp_trio import acp
from arcp_trio.proxies.acp.calls import Calls
from arcp_trio.proxies.acp.conversation import AgentConversation
from arcp_trio.proxies.acp.result import SpokenResult, pieces
from arcp_trio.proxies.acp.tool_calls import AgentToolCalls
from arcp_trio.runtime.job.context import JobContext
from arcp_trio.runtime.job.fitting import MOST_NAME, fitted_text, room
from arcp_trio.wire.errors import BudgetExhausted, InternalError, clip
from arcp_trio.wire.events import InvalidEvent
from arcp_trio.wire.json import JsonObject, is_list, object_in, text_in

log = logging.getLogger(__name__)

MOST_MERGED: Final = 64 * 1024
"""Characters of text that is waiting already, and goes into one event."""
MOST_PASSED_OVER: Final = 100
"""Kinds of updates of which the job's log says that they are passed over."""

_STATES: Final = frozenset(
    {
        *("available_commands_update", "current_mode_update", "config_option_update"),
        *("session_info_update", "notice", "compaction_update"),
    }
)
_STATE_WORDS: Final = ("message", "text", "title", "currentModeId", "name")

Item: TypeAlias = acp.Update | acp.Request
Ready: TypeAlias = Callable[[], Item | None]
"""Returns what comes next if it is waiting already."""


class UpdateEvents:
    """Tells the updates of one job's agent."""

    def __init__(self, job: JobContext, calls: Calls, conversation: AgentConversation) -> None:
        self.result: Final = SpokenResult(job)
        self._job = job
        self._room: Final = room(job.limits)
        self._tool_calls: Final = AgentToolCalls(job, calls)
        self._conversation: Final = conversation
        self._passed_over: set[str] = set()

    async def take(self, update: acp.Update, ready: Ready) -> Item | None:
        """Tell an update, and text that is waiting after it; return what was taken beyond that.

        Raises:
            BudgetExhausted: the agent has spent more, with its budget used up already.
        """
        if isinstance(update, acp.Chunk) and update.text:
            text, beyond = _merged(update, update.text, ready)
            await self._tell_text(update.role, text)
            return beyond
        try:
            await self._tell(update)
        except (ValueError, InvalidEvent) as error:
            await self._pass_over(update.kind, str(error))
        except InternalError as error:
            if "limit" not in error.details:
                raise
            await self._pass_over(update.kind, error.message)
        return None

    async def _tell(self, update: acp.Update) -> None:
        match update:
            case acp.Chunk():
                if update.role != "user":
                    await self._tell_content(update)
            case acp.ToolCall():
                if not await self._tool_calls.take(update):
                    await self._pass_over("too many tool calls", "further ones are not told")
            case acp.Plan():
                await self._tell_plan(update)
            case acp.Usage():
                await self._tell_usage(update)
            case _ if update.kind in _STATES:
                words = clip(_state_words(update.raw), MOST_NAME)
                await self._job.status(f"acp.{update.kind}", words or None)
            case _:
                raise ValueError("its kind is not known")

    async def _tell_text(self, role: acp.Role, text: str) -> None:
        if role == "agent":
            await self.result.add(text)
        elif role == "thought":
            for piece in pieces(text, self._room):
                await self._job.thought(piece)

    async def _tell_content(self, chunk: acp.Chunk) -> None:
        content = chunk.content
        kind, uri = text_in(content.get("type")), text_in(content.get("uri"))
        if kind == "text" and content.get("text") == "":
            return
        if not kind or kind == "text":
            raise ValueError("a message without content")
        media_type = text_in(content.get("mimeType"))
        if kind == "resource_link" and uri and len(uri) < self._room // 8:
            size = content.get("size")
            byte_size = size if type(size) is int and size >= 0 else None
            media_type = clip(media_type or "application/octet-stream", MOST_NAME)
            await self._job.artifact(uri, media_type, byte_size)
        else:
            what = f"{kind}, {media_type}" if media_type else kind
            words = f"the agent has sent content that is not passed on: {clip(what, MOST_NAME)}"
            await self._job.log(words)

    async def _tell_plan(self, plan: acp.Plan) -> None:
        if not is_list(plan.raw.get("entries")):
            raise ValueError("a plan without entries")
        entries = plan.entries
        done = sum(each.get("status") == "completed" for each in entries)
        at_work = (each for each in entries if each.get("status") == "in_progress")
        words = next((text_in(each.get("content")) for each in at_work), None)
        message = fitted_text(words, 10 * MOST_NAME) if words else None
        await self._job.progress(done, len(entries), "steps", message)

    async def _tell_usage(self, usage: acp.Usage) -> None:
        if usage.used is None and usage.cost is None:
            raise ValueError("usage without figures")
        if usage.used is not None:
            dimensions: JsonObject | None = None if usage.size is None else {"size": usage.size}
            await self._job.metric("acp.context.used", usage.used, "tokens", dimensions)
        if usage.cost is not None:
            amount, currency = usage.cost
            more = self._conversation.costs.increase(amount, currency[:MOST_NAME])
            if more:
                await self._conversation.keep()
                left = self._job.budget.get(currency)
                await self._job.metric("cost.inference", more, currency[:MOST_NAME])
                if left is not None and left <= 0:
                    raise BudgetExhausted(f"{currency} budget exhausted")

    async def _pass_over(self, kind: str, why: str) -> None:
        facts = {"job_id": self._job.id, "kind": clip(kind), "why": clip(why)}
        log.debug("update passed over", extra=facts)
        kind = clip(kind)
        if kind not in self._passed_over and len(self._passed_over) < MOST_PASSED_OVER:
            self._passed_over.add(kind)
            await self._job.log(f"passed over from the agent: {kind}: {clip(why)}", "warn")


def _merged(chunk: acp.Chunk, text: str, ready: Ready) -> tuple[str, Item | None]:
    """Return a text with that of the same kind that is waiting, and what comes after it."""
    texts, size = [text], len(text)
    beyond: Item | None = None
    while size < MOST_MERGED and (beyond := ready()) is not None:
        if not isinstance(beyond, acp.Chunk) or beyond.role != chunk.role or not beyond.text:
            return "".join(texts), beyond
        texts.append(beyond.text)
        size += len(beyond.text)
        beyond = None
    return "".join(texts), beyond


def _state_words(raw: JsonObject) -> str:
    """Return the words in an update that is about the agent's state."""
    commands = raw.get("availableCommands")
    if is_list(commands):
        return ", ".join(filter(None, (text_in(object_in(each).get("name")) for each in commands)))
    return next(filter(None, (text_in(raw.get(name)) for name in _STATE_WORDS)), "")
