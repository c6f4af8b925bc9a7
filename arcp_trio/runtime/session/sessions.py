"""The table of sessions: awake, parked, or dropped."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.access import no_longer_good
from arcp_trio.runtime.farewell import Farewell
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.notices import refusal, store_trouble
from arcp_trio.runtime.session.clerk import Clerk
from arcp_trio.runtime.session.openings import Openings
from arcp_trio.runtime.session.outbox import Leave
from arcp_trio.runtime.session.scribe import Scribe
from arcp_trio.runtime.session.session import Session
from arcp_trio.runtime.session.submission import Submissions
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.runtime.tasks import start_clean
from arcp_trio.runtime.usage import serve_principal
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.records import SessionRow
from arcp_trio.store.writes import PutSession
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.ids import new_id

if TYPE_CHECKING:
    from arcp_trio.runtime.access import Principal
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.attachment import Attachment
    from arcp_trio.runtime.session.other_nodes import OtherNodes
    from arcp_trio.runtime.session.parking import Check, Parking, Unparked
    from arcp_trio.store.queue import Group

log = logging.getLogger(__name__)

OPENING_SECONDS: Final = 0.5
"""How long the opening of a session waits for a store in trouble: a write may succeed at the next
try."""

GOODBYES: Final = 200
"""How many sessions are told of the end in one step."""

LEAVE_SECONDS: Final = 0.5
"""How long a client whose token is no longer good has to read what is on its way."""

RECHECK_SECONDS: Final = 60.0
"""How often the authenticator is asked about the clients that are connected: keys of signed tokens
go without anybody saying so."""


class Sessions:
    """Sessions by id: one that is awake has tasks, one that is parked is only a row."""

    def __init__(
        self,
        core: Core,
        jobs: Jobs,
        parking: Parking,
        nursery: trio.Nursery,
        others: OtherNodes | None = None,
    ) -> None:
        self.jobs = jobs
        self._others = others
        self._core = core
        self._nursery = nursery
        self._submissions = Submissions(core, jobs, nursery)
        self._awake: dict[str, Session] = {}
        self._between: dict[str, trio.Event] = {}
        """Sessions between awake and parked, not to be touched before their event is set."""
        self._failed: dict[str, Session] = {}
        """Sessions whose task has failed, by id: they may have promises that nobody was told of."""
        self._one_parts = Wake()
        self._parking = parking
        self.openings = Openings(core.store)
        self._connected: Counter[str] = Counter()
        self.elsewhere: Mapping[str, int] = {}
        """How many sessions each principal has awake at other nodes, as of a moment ago."""

    # -- awake

    def create(
        self, principal: Principal, features: frozenset[str], dialect: str, token_digest: bytes
    ) -> tuple[Session, Group]:
        """Make a session, awake and held for the caller; its client may know once it is stored."""
        row = SessionRow(
            session_id=new_id("sess_"),
            principal=principal.name,
            client=principal.facts,
            features=features,
            dialect=dialect,
            token_digest=token_digest,
        )
        session = Session(self._core, row)
        self._start(session)
        return session, self._core.store.put(PutSession(row))

    async def wake(self, session_id: str, check: Check) -> Session | None:
        """Return a session that passes `check`, awake and held for the caller.

        Return None if there is no such session.
        """
        while (session := await self._awake_or_none(session_id)) is not None:
            session.hold()
            try:
                elsewhere = session.elsewhere or await self._parking.is_elsewhere(session_id)
                if not elsewhere:
                    await check(session.record)
            except BaseException:
                session.release()
                raise
            if not (elsewhere or session.lost):
                return session
            session.release()
            if session.lost:
                return None
            await self._end(session)
        return await self._wake_from_store(session_id, check)

    def has(self, session_id: str) -> bool:
        """Whether a session is awake, or is just being woken or parked."""
        return session_id in self._awake or session_id in self._between

    async def _awake_or_none(self, session_id: str) -> Session | None:
        """Return a session that is awake; None if it is not, and so can be taken."""
        while session_id in self._between:
            await self._between[session_id].wait()
        return self._awake.get(session_id)

    async def _end(self, session: Session) -> None:
        """Have a session end here, because another runtime has it or is to have it."""
        session.went_elsewhere()
        while self._awake.get(session.id) is session:
            await self._one_parts.wait()

    async def let_go(self, session_id: str, moves: int) -> None:
        """Park a session that another node asks for, if it has moved so often.

        If it has moved on since, and come back even, the other node asks no longer.

        Raises:
            InternalError: it is busy, and is parked a little later.
        """
        with trio.move_on_after(self._core.limits.release_seconds / 2):
            session = await self._awake_or_none(session_id)
            if session is not None and session.moves == moves:
                await self._end(session)
                await self._awake_or_none(session_id)
            return
        raise InternalError("the session is busy")

    async def _wake_from_store(self, session_id: str, check: Check) -> Session | None:
        between = self._between[session_id] = trio.Event()
        try:
            unparked = await self._parking.take(session_id, check)
            return None if unparked is None else self._restore(unparked)
        finally:
            del self._between[session_id]
            between.set()

    def _restore(self, unparked: Unparked) -> Session:
        """Start a session with what its row has."""
        row = unparked.row
        session = Session(self._core, row, unparked.window_ends)
        for job_id, cursor in row.watches.items():
            journal = self.jobs.journal(job_id, cursor)
            observer = job_id in row.observed
            watch = session.watches[job_id] = Watch(session, job_id, journal, cursor, observer)
            if observer:
                session.subscriptions[job_id] = watch
            watch.join_journal()
        self._start(session)
        self._submissions.promise_untold(session, unparked.untold)
        failed = self._failed.pop(session.id, None)
        if failed is not None:
            self._submissions.promise_again(session, failed)
        return session

    def _start(self, session: Session) -> None:
        """Start a session's tasks, and hold it for the caller."""
        self._awake[session.id] = session
        session.hold()
        start_clean(self._nursery, self._keep, session, name=f"session {session.id}")

    async def _keep(self, session: Session) -> None:
        """Run a session's tasks for as long as it is needed in memory; then park it."""
        core = self._core
        serve_principal(session.principal)
        try:
            async with trio.open_nursery() as nursery:
                with session.inbox.clerk_starts_by(partial(self._start_clerk, session, nursery)):
                    await Scribe(core, self.jobs, session, self._others).run()
                    self._begin_to_part(session)
                nursery.cancel_scope.cancel(reason="nobody needs the session awake")
        except Exception:
            log.exception("session failed", extra=session.facts)
            self._failed[session.id] = session
            if session.id in self._awake:
                self._begin_to_part(session)
            if session.holder is not None and session.holder is not session.attached:
                session.holder.closing.now(CloseCode.FAILED, "the session failed")
            if session.attached is not None:
                session.attached.fail(InternalError("the session failed"), CloseCode.FAILED)
                session.attached.closing.within(core.limits.close_seconds)
                await session.left()  # so that no second session of this id exists
        # A session that wakes is read from its row, which must have everything by then.
        await core.store.flushed()
        await self._part(session)

    def _start_clerk(self, session: Session, nursery: trio.Nursery) -> None:
        clerk = Clerk(self._core, self.jobs, session, self._submissions, self._others)
        nursery.start_soon(clerk.run, name=f"clerk of {session.id}")

    def _begin_to_part(self, session: Session) -> None:
        del self._awake[session.id]
        self._between[session.id] = trio.Event()
        self._one_parts.set()
        for watch in session.watches.values():
            watch.leave_journal()

    async def _part(self, session: Session) -> None:
        session.inbox.close()
        session.outbox.close()
        if session.lost is None:
            await self._parking.park(session)
        else:
            self._failed.pop(session.id, None)
            self._parking.drop(session.id, session.lost)
        self._between.pop(session.id).set()

    # -- parked

    def park_all(self, principals: Mapping[str, str]) -> None:
        """Park sessions that an earlier runtime left in the store."""
        self._parking.park_all(principals)

    def drop_due(self) -> float:
        """Drop sessions whose window is over; return when the next one ends, on Trio's clock."""
        return self._parking.drop_due()

    # -- figures

    @property
    def attached(self) -> int:
        """How many sessions have a connection."""
        return sum(session.holder is not None for session in self._awake.values())

    @property
    def left_alone(self) -> int:
        """How many sessions have no connection and may be resumed."""
        return len(self._awake) + len(self._between) + len(self._parking) - self.attached

    @property
    def most_lag(self) -> int:
        """How many events the connected session that is furthest behind is behind."""
        return max((session.lag for session in self._awake.values()), default=0)

    # -- connections

    def refuse_if_full(self, principal: str) -> None:
        """Refuse a principal that has as many connected sessions as it may have.

        Raises:
            InternalError: the limit is reached.
        """
        most = self._core.limits.sessions_per_principal
        if self._connected[principal] + self.elsewhere.get(principal, 0) >= most:
            helps = "try again when a session has ended"
            raise limit_hit("sessions_per_principal", most, what_helps=helps)

    def join(self, session: Session, attachment: Attachment) -> None:
        """Give a session to a connection, and count the connection for its principal."""
        session.give_to(attachment)
        attachment.join()
        self._connected[session.principal] += 1

    def leave(self, session: Session, attachment: Attachment) -> None:
        """Take a session from a connection that has ended, or that goes on with another."""
        session.detach(attachment)
        if attachment.leave():
            self._connected[session.principal] -= 1
            if not self._connected[session.principal]:
                del self._connected[session.principal]

    async def mind_store(self) -> None:
        """End the connections that wait for a store in trouble, until cancelled.

        The jobs wait at their next emit and go on by themselves; a client comes back and resumes.
        """
        while True:
            await self._core.store.troubled()
            self.tell_of_trouble()
            with trio.move_on_after(OPENING_SECONDS) as waiting:
                await self._core.store.recovered()
            if waiting.cancelled_caught:
                self.openings.give_up()
                await self._core.store.recovered()

    async def mind_tokens(self) -> None:
        """End the connections of clients whose tokens are no longer good, until cancelled."""
        while True:
            with trio.move_on_after(RECHECK_SECONDS) as waiting:
                await self._core.authentication.changed.wait()
            await self._recheck(asked=not waiting.cancelled_caught)

    async def _recheck(self, *, asked: bool) -> None:
        """End the connections of clients whose tokens are no longer good.

        If `asked`, those of whom nobody can say have to present their tokens again.
        """
        clients = [each.record.client for each in self._awake.values() if each.scope is None]
        good: dict[tuple[str, str], bool | None] = {}
        for key, client in {(each, each.facts): each for each in clients}.items():
            with suppress(ArcpError):  # it is asked again in a minute
                good[key] = await self._core.authentication.is_good(client)
        for session in self._awake.values():
            client, holder = session.record.client, session.holder
            verdict = good.get((client, client.facts), True)
            if verdict or holder is None or session.scope is not None:
                continue
            if verdict is False:
                log.info("token no longer good", extra=session.facts)
                error = no_longer_good()
                farewell = Farewell(CloseCode.POLICY, error.message, refusal(error))
            elif asked:
                farewell = Farewell(CloseCode.ELSEWHERE, "present the token again")
            else:
                continue
            holder.end(farewell, within=LEAVE_SECONDS)

    def tell_of_trouble(self) -> None:
        """End the connections whose sessions wait for the store."""
        for session in self._awake.values():
            if session.attached is not None and session.waits_for_store:
                session.attached.fail(store_trouble(self._core.store), CloseCode.FAILED)

    async def say_goodbye(self, farewell: Farewell) -> None:
        """Have every connection closed after everything its session is owed.

        The first ones are closed while others are yet to be told: on a busy machine it may take
        seconds to close thousands.
        """
        for number, session in enumerate(list(self._awake.values()), start=1):
            if session.attached is not None:
                session.tell(Leave(session.attached, farewell, caught_up=True))
            if number % GOODBYES == 0:
                await trio.lowlevel.checkpoint()
