"""What a request of an agent comes to, once it is read: what to check, and what to do then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs

from arcp_trio.proxies.acp.edits import Edit
from arcp_trio.proxies.acp.named import WRITE, Need
from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.json import JsonObject, JsonValue


@attrs.frozen
class Clearance:
    """An operation's being allowed: it may be done now."""

    call_id: str
    """The tool call by which it is told."""
    decision: Mapping[str, JsonValue] = attrs.field(factory=dict[str, "JsonValue"])
    """What the call's result says of a person's decision; empty if the lease alone allows it."""

    @property
    def approved(self) -> str | None:
        """The call's id, if it is a person that has allowed it."""
        return self.call_id if self.decision else None


@attrs.frozen(kw_only=True)
class Operation:
    """What an agent wants to be done."""

    args: JsonObject
    """What is told of it."""
    shown: JsonObject
    """What else people see who decide on it: the folder, and the command."""
    edits: Sequence[Edit] = ()
    """What they see of what is to be written."""
    is_edit: bool = False
    """Whether files are to be written whose content may not be known."""
    needs: Sequence[Need]
    perform: Callable[[Clearance], Awaitable[None]]
    """Does it, tells its result, and answers the agent."""
    at_once: bool = False
    """Whether it takes no time, and so is done before anything else that the agent tells."""
    obstacle: ArcpError | None = None
    """Why it is refused even if it is allowed."""

    @property
    def written(self) -> list[str]:
        """The paths that it would write."""
        return [path for need in self.needs if need.capability == WRITE for path in need.targets]
