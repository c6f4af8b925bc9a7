"""Sessions that every node can take: they are parked at none of them, and can be stolen."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.metrics import Move
from arcp_trio.runtime.session.parking import Parking, Unparked
from arcp_trio.runtime.session.record import Record
from arcp_trio.runtime.tasks import first_of
from arcp_trio.store.errors import StoreError
from arcp_trio.store.shared_writes import ReleaseSession, TakeSession
from arcp_trio.wire.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.parking import Check
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.runtime.session.sessions import Sessions
    from arcp_trio.store.shared import Moves, SessionPlace

log = logging.getLogger(__name__)

BUSY_SECONDS: Final = 5.0
"""How much longer a node has that says that it is about to let go of a session."""

LOOK_SECONDS: Final = 0.05
"""Pause between two looks at where a session is."""

PATIENT_LOOKS: Final = 10
"""How many looks a node that is asked to let go has at least, however far away the database is: its
part takes some seven round trips."""

STRAYS_SECONDS: Final = 10.0
"""Pause between two looks for sessions of this node that are not awake."""

TRIES: Final = 20
"""How often to go for a session that other nodes take and release meanwhile."""


class SharedParking(Parking):
    """Takes sessions out of the store, and from other nodes, which are asked to let go of them.

    A node that does not answer has its session stolen. Whatever it still writes of the session is
    refused, and so it notices.
    """

    def __init__(
        self,
        core: Core,
        jobs: Jobs,
        moves: Moves,
        me: int,
        ask_to_release: Callable[[str, int], Awaitable[bool]],
    ) -> None:
        """Take sessions for node `me`.

        `ask_to_release` asks the node of a session to let go of it, and returns whether it has; it
        may never return.
        """
        super().__init__(core, jobs)
        self._moves = moves
        self._me = me
        self._ask_to_release = ask_to_release
        self._silent: dict[int, int | None] = {}
        """The nodes that did not answer, and how many signs of life each had given by then."""

    def __len__(self) -> int:
        return 0

    async def is_elsewhere(self, session_id: str) -> bool:
        place = await self._moves.place(session_id)
        return place is None or place.node != self._me

    async def park(self, session: Session) -> None:
        now, window = trio.current_time(), self._core.limits.resume_window_seconds
        seconds = window if session.window_ends is None else max(0.0, session.window_ends - now)
        group = self._core.store.put(ReleaseSession(session.id, seconds))
        await group.committed()
        if session.id not in group.refused:  # else another node has it
            log.debug("session parked", extra=session.facts | {"seconds": round(seconds, 3)})

    def park_all(self, principals: Mapping[str, str]) -> None:
        """Do nothing: what a node leaves behind is parked in the store."""

    def drop_due(self) -> float:
        """Do nothing: the store drops the sessions whose windows are over, by its own clock."""
        return trio.current_time() + self._core.limits.resume_window_seconds

    async def take(self, session_id: str, check: Check) -> Unparked | None:
        core = self._core
        found = await self._moves.find(session_id)
        if found is None:
            return None
        await check(Record(core.store, core.limits, found.row))
        try:
            was = await self._fetch(session_id, found.place)
            if was is None:
                return None
            # Only now is it certain that nobody else changes it.
            found = await self._moves.find(session_id)
            assert found is not None, "what is this node's is stored"
        except Exception:
            # It is refused, unless the session has become this node's. An attempt that is cancelled
            # (a distant database took too long) leaves the session here for the next attempt.
            core.store.put(ReleaseSession(session_id, core.limits.resume_window_seconds))
            raise
        ends = None if was.seconds is None else trio.current_time() + was.seconds
        return Unparked(found.row, ends, found.untold)

    async def park_strays(self, sessions: Sessions) -> None:
        """Park what is this node's in the store and not awake here, now and then, until cancelled.

        An attempt to resume a session was given up, and the client has not come back.
        """
        window = self._core.limits.resume_window_seconds
        while True:
            await trio.sleep(STRAYS_SECONDS)
            try:
                here = await self._moves.sessions_here()
            except StoreError as error:
                log.debug("sessions of this node not read", extra={"error": str(error)})
                continue
            for session_id in here:
                if not sessions.has(session_id):
                    log.info("session parked that was not awake", extra={"session_id": session_id})
                    self._core.store.put(ReleaseSession(session_id, window))

    # -- making it this node's

    async def _fetch(self, session_id: str, place: SessionPlace | None) -> SessionPlace | None:
        """Make a session this node's that was found at `place`; return where it was at last.

        Return None if it is gone.

        Raises:
            InternalError: other nodes are after it, too.
        """
        how = Move.CLAIMED
        for _ in range(TRIES):
            if place is None or place.over:
                return None
            node = place.node
            if node is None:
                mine = await self._take(session_id, place)
            elif node == self._me:
                mine = await self._is_left_here(session_id)
            elif await self._released(session_id, node, place):
                how = Move.RELEASED
                place = await self._moves.place(session_id)
                continue  # it is parked now, for anyone to take
            else:
                mine = await self._take(session_id, place)
                how = Move.STOLEN if mine else how
            if mine:
                self._note(session_id, how, place)
                return place
            await trio.sleep(LOOK_SECONDS)
            place = await self._moves.place(session_id)
        raise InternalError("the session is being resumed elsewhere: try again")

    def _note(self, session_id: str, how: Move, place: SessionPlace) -> None:
        self._core.metrics.sessions_moved[how] += 1
        level = logging.WARNING if how is Move.STOLEN else logging.INFO
        moved = {"session_id": session_id, "how": how, "from_node": place.node}
        log.log(level, "session moved here", extra=moved)

    async def _is_left_here(self, session_id: str) -> bool:
        """Return whether the session is this node's, although nobody has it awake.

        A take that was given up has its release on its way. A theft that was given up may still
        succeed after that.
        """
        await self._core.store.flushed()
        return not await self.is_elsewhere(session_id)

    async def _take(self, session_id: str, place: SessionPlace) -> bool:
        """Take a session from where it is, whether its node agrees or not.

        Most often it is taken in a group, with many others, which waits for nobody. It is refused
        if another connection has the session locked.
        """
        group = self._core.store.put(TakeSession(session_id, place.node, place.moves))
        await group.committed()
        return session_id not in group.refused or await self._moves.take_when_unlocked(
            session_id, place.node, place.moves
        )

    async def _released(self, session_id: str, node: int, place: SessionPlace) -> bool:
        """Ask a node to let go of a session; return whether it has within its time."""
        if self._silent.get(node, -1) == place.beats:
            return False
        if not await self._moves.is_connected(node):  # its process has ended, it seems
            self._silent[node] = place.beats
            return False
        answers: list[bool] = []
        moved_on = False

        async def ask() -> None:
            answers.append(await self._ask_to_release(session_id, place.moves))

        async def look() -> None:
            # It may be about to park the session by itself, and then finds no command.
            nonlocal moved_on
            seconds = self._core.limits.release_seconds
            moved_on = await self._moved_on(session_id, place.moves, seconds)

        await first_of(ask, look)
        if not answers and not moved_on:
            self._silent[node] = place.beats
            return False
        self._silent.pop(node, None)
        if answers == [False]:
            return await self._moved_on(session_id, place.moves, BUSY_SECONDS)
        return moved_on or await self._has_moved_on(session_id, place.moves)

    async def _moved_on(self, session_id: str, moves: int, seconds: float) -> bool:
        """Wait until a session is not where it was when it had moved so often.

        Return False if it still is after this time.
        """
        ends, looks = trio.current_time() + seconds, 0
        while not await self._has_moved_on(session_id, moves):
            looks += 1
            patience_ends = ends if looks >= PATIENT_LOOKS else math.inf
            if trio.current_time() >= patience_ends:
                return False
            await trio.sleep_until(min(trio.current_time() + LOOK_SECONDS, patience_ends))
        return True

    async def _has_moved_on(self, session_id: str, moves: int) -> bool:
        place = await self._moves.place(session_id)
        return place is None or place.node is None or place.moves != moves
