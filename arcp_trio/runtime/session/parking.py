"""The sessions that are parked: until when each can be resumed, and how many a principal has."""

from __future__ import annotations

import heapq
import math

import attrs


@attrs.frozen
class Parked:
    """A session that is only a row in the store."""

    deadline: float
    """The end of its window."""
    principal: str


class Parking:
    """Parked sessions by id, by principal, and by the end of their windows (§6.3)."""

    def __init__(self, most_each: int) -> None:
        self._most_each = most_each
        self._parked: dict[str, Parked] = {}
        self._deadlines: list[tuple[float, str]] = []
        """A heap; an entry counts only if its session is still parked until that time."""
        self._of_principal: dict[str, dict[str, None]] = {}
        """Ids by principal, oldest first."""

    def __len__(self) -> int:
        return len(self._parked)

    def add(self, session_id: str, parked: Parked) -> str | None:
        """Park a session; return the id of the one that its principal has to lose for it."""
        self._parked[session_id] = parked
        heapq.heappush(self._deadlines, (parked.deadline, session_id))
        siblings = self._of_principal.setdefault(parked.principal, {})
        siblings[session_id] = None
        if len(siblings) <= self._most_each:
            return None
        oldest = next(iter(siblings))
        self.remove(oldest)
        return oldest

    def remove(self, session_id: str) -> Parked | None:
        """Return a session that is to be parked no longer; None if it is not parked."""
        parked = self._parked.pop(session_id, None)
        if parked is not None:
            siblings = self._of_principal[parked.principal]
            del siblings[session_id]
            if not siblings:
                del self._of_principal[parked.principal]
        return parked

    def remove_due(self, now: float) -> list[str]:
        """Remove the sessions whose windows are over, and return their ids."""
        due: list[str] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, session_id = heapq.heappop(self._deadlines)
            parked = self._parked.get(session_id)
            if parked is not None and parked.deadline == deadline:
                self.remove(session_id)
                due.append(session_id)
        return due

    @property
    def next_deadline(self) -> float:
        """The time at which the next window may end."""
        return self._deadlines[0][0] if self._deadlines else math.inf
