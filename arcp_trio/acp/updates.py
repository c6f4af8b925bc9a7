"""Updates, as programs see them: views of what the agent has sent, which stays in `raw`.

A field that is missing or has another type than the protocol says gets an empty value. A kind that
this package does not know is `Other`.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final, Literal, TypeAlias

from attrs import frozen

from arcp_trio.wire.json import Json, JsonObject, is_list, is_object, object_in

Role: TypeAlias = Literal["agent", "thought", "user"]

_ROLES: Final[dict[str, Role]] = {
    "agent_message_chunk": "agent",
    "agent_thought_chunk": "thought",
    "user_message_chunk": "user",
}


@frozen
class Update:
    """One thing that the agent tells of its session; `kind` is the protocol's `sessionUpdate`."""

    kind: str
    raw: dict[str, Json]


@frozen
class Chunk(Update):
    """A piece of a message: of the agent's words or thoughts, or of the user's."""

    @property
    def role(self) -> Role:
        """The one whose words these are."""
        return _ROLES[self.kind]

    @property
    def content(self) -> dict[str, Json]:
        """The content block."""
        return object_in(self.raw.get("content"))

    @property
    def text(self) -> str:
        """The text of a text block, "" for any other block."""
        text = self.content.get("text")
        return text if self.content.get("type") == "text" and isinstance(text, str) else ""


@frozen
class ToolCall(Update):
    """A tool call, or what has changed of one."""

    @property
    def id(self) -> str:
        """The name by which the agent's updates speak of the call."""
        id_ = self.raw.get("toolCallId")
        return id_ if isinstance(id_, str) else ""

    @property
    def new(self) -> bool:
        """Whether the call is announced, rather than changed."""
        return self.kind == "tool_call"


@frozen
class Plan(Update):
    """The agent's plan, always the whole of it."""

    @property
    def entries(self) -> list[dict[str, Json]]:
        """The steps, each with `content`, `priority` and `status`."""
        entries = self.raw.get("entries")
        return [each for each in entries if is_object(each)] if is_list(entries) else []


@frozen
class Usage(Update):
    """How much of its context, and of somebody's money, the session has used so far."""

    @property
    def used(self) -> int | None:
        """Tokens in the context."""
        return _count(self.raw.get("used"))

    @property
    def size(self) -> int | None:
        """Tokens that the context has room for."""
        return _count(self.raw.get("size"))

    @property
    def cost(self) -> tuple[Decimal, str] | None:
        """What the whole session has cost up to now, with the currency."""
        cost = object_in(self.raw.get("cost"))
        amount, currency = cost.get("amount"), cost.get("currency")
        if type(amount) not in (int, float) or not isinstance(currency, str):
            return None
        assert isinstance(amount, int | float)
        return (Decimal(str(amount)), currency) if amount >= 0 and math.isfinite(amount) else None


@frozen
class Other(Update):
    """An update of any other kind."""


_KINDS: Final[dict[str, type[Update]]] = {
    **dict.fromkeys(_ROLES, Chunk),
    "tool_call": ToolCall,
    "tool_call_update": ToolCall,
    "plan": Plan,
    "usage_update": Usage,
}


def update_of(raw: JsonObject) -> Update | None:
    """Return the view of an update, None if it does not say its kind."""
    kind = raw.get("sessionUpdate")
    return _KINDS.get(kind, Other)(kind, raw) if isinstance(kind, str) else None


def _count(value: Json) -> int | None:
    return value if type(value) is int and value >= 0 else None
