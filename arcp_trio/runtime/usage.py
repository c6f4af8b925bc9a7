"""What each principal has used of what all share, and how fast it may send."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from contextvars import ContextVar
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.transport.pace import Pace, pace_of_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arcp_trio.runtime.limits import Limits

MOST_PRINCIPALS: Final = 10_000
"""Principals that are remembered; past it the one that was not seen for longest is forgotten."""

BURST_SECONDS: Final = 4.0
"""A principal that was quiet may send this many seconds' worth of messages at once."""


@attrs.define(eq=False)
class Usage:
    """What one principal has used since the runtime began, whatever number of sessions it has."""

    principal: str
    pace: Pace
    """How fast messages may come on all its connections."""
    parts_pace: Pace = attrs.field(factory=pace_of_parts)
    """How fast all else may come on them: fragments, pings and pongs."""
    messages: int = 0
    """Messages that its clients have sent."""
    message_bytes: int = 0
    journal_bytes: int = 0
    """Bytes of the events of its jobs that have ended, as they were stored."""
    loop_seconds: float = 0
    """How long the loop was busy with its sessions, connections and jobs, by samples."""

    def count_message(self, size: int) -> float:
        """Count a message; return how long to wait before reading the next, if above 0."""
        self.messages += 1
        self.message_bytes += size
        return self.pace.count()


KINDS: Final = ("messages", "message_bytes", "journal_bytes", "loop_seconds")
"""What is counted: the names of attributes of `Usage`."""


_served: ContextVar[str] = ContextVar("served")


def serve_principal(principal: str) -> None:
    """Have this task, and those that it starts, count as work for a principal."""
    _served.set(principal)


def principal_of(task: trio.lowlevel.Task | None) -> str | None:
    """Return the principal for which a task, or one that it is part of, works; any thread may."""
    while task is not None:
        principal = task.context.get(_served)
        if principal is not None:
            return principal
        task = None if task.parent_nursery is None else task.parent_nursery.parent_task
    return None


class Usages:
    """The usage of all principals."""

    def __init__(self, limits: Limits) -> None:
        self._per_second = limits.messages_per_second
        self._usages: OrderedDict[str, Usage] = OrderedDict()

    def of(self, principal: str) -> Usage:
        """Return a principal's usage; a session and a job ask for it once, and keep it."""
        usage = self._usages.get(principal)
        if usage is None:
            pace = Pace(self._per_second, burst_seconds=BURST_SECONDS)
            usage = self._usages[principal] = Usage(principal, pace)
            if len(self._usages) > MOST_PRINCIPALS:
                self._usages.popitem(last=False)
        self._usages.move_to_end(principal)
        return usage

    def largest(self, kind: str, count: int) -> Sequence[Usage]:
        """Return the usages of those that have used most."""
        used = attrgetter(kind)
        return [
            each for each in heapq.nlargest(count, self._usages.values(), key=used) if used(each)
        ]
