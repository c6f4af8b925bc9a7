"""The parked sessions of a runtime that has its store to itself."""

from __future__ import annotations

import heapq
import logging
import math
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.session.parking import Parking, Unparked
from arcp_trio.runtime.session.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.parking import Check
    from arcp_trio.runtime.session.session import Session

log = logging.getLogger(__name__)


@attrs.frozen
class Parked:
    """A session that is only a row in the store."""

    deadline: float
    """The end of its window."""
    principal: str


class LocalParking(Parking):
    """Keeps parked sessions by id, by principal, and by the end of their windows."""

    def __init__(self, core: Core, jobs: Jobs) -> None:
        super().__init__(core, jobs)
        self._parked: dict[str, Parked] = {}
        self._deadlines: list[tuple[float, str]] = []
        """A heap; an entry counts only if its session is still parked until that time."""
        self._of_principal: dict[str, dict[str, None]] = {}
        """Ids by principal, oldest first."""

    def __len__(self) -> int:
        return len(self._parked)

    async def is_elsewhere(self, session_id: str) -> bool:  # noqa: ARG002
        return False

    async def take(self, session_id: str, check: Check) -> Unparked | None:
        # From here on its window cannot end: a resume that has begun wins (§6.3).
        parked = self._remove(session_id)
        if parked is None:
            return None
        if parked.deadline <= trio.current_time():
            self.drop(session_id, "its window is over")
            return None
        core = self._core
        try:
            row = await core.store.for_principal(parked.principal, urgent=True).session(session_id)
            assert row is not None, "what is parked is stored"
            await check(Record(core.store, core.limits, row))
        except BaseException:
            self._add(session_id, parked)
            raise
        return Unparked(row, parked.deadline)

    async def park(self, session: Session) -> None:
        now = trio.current_time()
        deadline = session.window_ends or now + self._core.limits.resume_window_seconds
        log.debug("session parked", extra=session.facts | {"seconds": round(deadline - now, 3)})
        self._add(session.id, Parked(deadline, session.principal))

    def park_all(self, principals: Mapping[str, str]) -> None:
        deadline = trio.current_time() + self._core.limits.resume_window_seconds
        for session_id, principal in principals.items():
            self._add(session_id, Parked(deadline, principal))

    def drop_due(self) -> float:
        now = trio.current_time()
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, session_id = heapq.heappop(self._deadlines)
            parked = self._parked.get(session_id)
            if parked is not None and parked.deadline == deadline:
                self._remove(session_id)
                self.drop(session_id, "its window is over")
        return self._deadlines[0][0] if self._deadlines else math.inf

    def _add(self, session_id: str, parked: Parked) -> None:
        """Park a session; if its principal has too many now, drop the oldest."""
        self._parked[session_id] = parked
        heapq.heappush(self._deadlines, (parked.deadline, session_id))
        siblings = self._of_principal.setdefault(parked.principal, {})
        siblings[session_id] = None
        if len(siblings) > self._core.limits.parked_sessions_per_principal:
            oldest = next(iter(siblings))
            self._remove(oldest)
            self.drop(oldest, "parked_sessions_per_principal")

    def _remove(self, session_id: str) -> Parked | None:
        """Return a session that is to be parked no longer; None if it is not parked."""
        parked = self._parked.pop(session_id, None)
        if parked is not None:
            siblings = self._of_principal[parked.principal]
            del siblings[session_id]
            if not siblings:
                del self._of_principal[parked.principal]
        return parked
