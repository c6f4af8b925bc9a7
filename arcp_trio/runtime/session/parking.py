"""What has the sessions that are not awake, until they are resumed or their windows end."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import attrs

from arcp_trio.store.writes import DropSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.record import Record
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.store.records import SessionRow
    from arcp_trio.store.shared import UntoldJob

log = logging.getLogger(__name__)

Check: TypeAlias = "Callable[[Record], Awaitable[None]]"
"""Raises an error if a session with this record is not to be woken."""


@attrs.frozen
class Unparked:
    """A session that is parked no longer, and that the caller has to wake or to park again."""

    row: SessionRow
    window_ends: float | None
    """On Trio's clock: see `Session.window_ends`."""
    untold: Sequence[UntoldJob] = ()
    """Jobs that were accepted in it, and that its client has yet to be told of."""


class Parking(ABC):
    """Has the sessions that are not awake (§6.3)."""

    def __init__(self, core: Core, jobs: Jobs) -> None:
        self._core = core
        self._jobs = jobs

    @abstractmethod
    def __len__(self) -> int:
        """Return how many there are, as far as this runtime knows."""

    @abstractmethod
    async def is_elsewhere(self, session_id: str) -> bool:
        """Return whether another runtime has a session by now that is awake here."""

    @abstractmethod
    async def take(self, session_id: str, check: Check) -> Unparked | None:
        """Take a session out if it passes `check`; if not, nothing about it changes.

        Return None if there is no such session.
        """

    @abstractmethod
    async def park(self, session: Session) -> None:
        """Park a session that is needed in memory no longer, and of which everything is stored."""

    @abstractmethod
    def park_all(self, principals: Mapping[str, str]) -> None:
        """Park sessions that an earlier runtime left in the store, each for a full window."""

    @abstractmethod
    def drop_due(self) -> float:
        """Drop the sessions whose windows are over; return when the next window may end."""

    def drop(self, session_id: str, why: str) -> None:
        """Forget a session. Its jobs run on, and their events stay in their journals."""
        log.debug("session dropped", extra={"session_id": session_id, "why": why})
        self._core.store.put(DropSession(session_id))
        self._jobs.remove_submitter(session_id)
