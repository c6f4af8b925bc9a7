"""Keeps a session connected: opens a connection, loses it, gets another one and goes on."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable
from typing import Final

import trio

from arcp_trio.client.delivery import Delivery
from arcp_trio.client.dialing import Dialer
from arcp_trio.client.errors import (
    ConnectionFailed,
    ConnectionLost,
    ConnectTimedOut,
    ProtocolError,
)
from arcp_trio.client.handshake import Greeting, Resumption, greet, hello
from arcp_trio.client.link import Gap, Link
from arcp_trio.client.presence import Presence
from arcp_trio.client.recovery import recover
from arcp_trio.client.room import Room
from arcp_trio.client.session import Session
from arcp_trio.transport.base import MessageTooBig, Transport, TransportClosed
from arcp_trio.wire.errors import ArcpError, InvalidRequest, ResumeWindowExpired
from arcp_trio.wire.features import Feature

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 10.0
DEFAULT_WINDOW_SECONDS: Final = 60.0
"""How long a session may be away, where its runtime does not say."""
MOST_GAPS: Final = 3
"""So many resumes that bring the same gap again say that it will not be filled."""

_TOO_BIG: Final = 1009
_NOT_YET: Final = frozenset({"PERMISSION_DENIED", "INTERNAL_ERROR", "HEARTBEAT_LOST"})
"""Refusals of a resume that may be other ones soon: some runtimes have the old connection still."""


class Supervisor:
    """One client's. `session` and `link` are what there is now."""

    def __init__(
        self,
        dialer: Dialer,
        *,
        token: str | None,
        features: Iterable[str],
        delivery: Delivery,
        room: Room,
        most_result_bytes: int,
        reconnect_seconds: float | None,
        now: Callable[[], float],
    ) -> None:
        self.session: Session | None = None
        self.link: Link | None = None
        self.presence = Presence()
        self.leaving = False
        """The end of the connection is the end."""
        self._dialer = dialer
        self._token = token
        self._features = tuple(features)
        self._delivery = delivery
        self._room = room
        self._most_result_bytes = most_result_bytes
        self._reconnect_seconds = reconnect_seconds
        self._now = now
        self._resume_token: str | None = None
        self._gaps = (0, 0)  # where the stream had a gap last, and how often in a row
        self._step_back = False

    async def run(self, opened: Callable[[], None]) -> None:
        """Stay connected; `opened` is called once there is a session.

        Returns when the connection ends and the client is leaving.

        Raises:
            ConnectionFailed, ArcpError: there is no session, or none to go on with.
        """
        why = await self._use(opened)
        while not self.leaving:
            self._judge(why)
            why = await self._use_another(why)

    # -- connections

    async def _use_another(self, why: Exception) -> Exception:
        """Get another connection and use it to its end, as long as there is hope."""
        assert self.session is not None
        window = self.session.greeting.resume_window or DEFAULT_WINDOW_SECONDS
        patience = window if self._reconnect_seconds is None else self._reconnect_seconds
        if not self._dialer.again or patience <= 0 or self._resume_token is None:
            raise ConnectionLost(f"the connection was lost: {why}") from why
        log.info("connection lost (%s); trying to get it back", why)
        self.presence.note(there=False)
        lost_at = trio.current_time()
        pause = FIRST_PAUSE_SECONDS
        while True:
            left = max(0.0, lost_at + patience - trio.current_time())
            await trio.sleep(min(random.uniform(pause / 2, pause), left))  # noqa: S311 - no secret
            try:
                return await self._use()
            except ConnectionFailed as error:
                why = error
            except ArcpError as error:
                if error.code not in _NOT_YET and not self._may_step_back(error):
                    raise self._expired(error) from error
                why = error
            if trio.current_time() >= lost_at + patience:
                raise self._given_up(why, patience, window) from why
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _use(self, opened: Callable[[], None] = lambda: None) -> Exception:
        """Open a connection, use it to its end, and return why it ended.

        Raises:
            ConnectionFailed, ArcpError: there was none, or no session on it.
        """
        with trio.CancelScope(deadline=trio.current_time() + self._dialer.seconds) as opening:
            async with self._dialer.open() as transport:
                try:
                    greeting = await greet(transport, self._hello(), self._features)
                except TransportClosed as why:
                    raise ConnectionLost(f"the runtime hung up on hello: {why}") from why
                forgot = self.session is not None and greeting.dialect.forgets_while_away
                session = self._welcome(greeting)
                opening.deadline = math.inf
                link = self._link(transport, session)
                self.presence.note(there=True)
                opened()
                try:
                    return await _converse(session, link, recovering=forgot)
                finally:
                    self.link = None
        raise ConnectTimedOut(f"there was no session within {self._dialer.seconds:g} seconds")

    def _hello(self) -> bytes:
        session, resumption = self.session, None
        if session is not None and self._resume_token is not None:
            after_seq = max(0, session.top - 1) if self._step_back else session.top
            resumption = Resumption(
                session_id=session.id, token=self._resume_token, after_seq=after_seq
            )
        return hello(self._token, self._features, resumption)

    def _welcome(self, greeting: Greeting) -> Session:
        self._resume_token = greeting.resume_token or self._resume_token
        self._step_back = False
        if self.session is None:
            self.session = Session(greeting, self._delivery, self._room, self._most_result_bytes)
        elif self.session.id != greeting.session_id:
            raise self._expired(ResumeWindowExpired("the runtime began another session"))
        else:
            self.session.greeting = greeting
        return self.session

    def _link(self, transport: Transport, session: Session) -> Link:
        """Begin to send: first, again, what is not answered."""
        greeting = session.greeting
        heartbeat = Feature.HEARTBEAT in greeting.features
        self.link = link = Link(
            transport,
            session.id,
            interval=(heartbeat and greeting.heartbeat_interval) or math.inf,
            ack=Feature.ACK in greeting.features,
            take=session.take,
            processed=lambda: self._delivery.processed(session.top),
            room=self._room,
            now=self._now,
        )
        for call in session.calls:
            link.send_frame(session.calls.frame(call, session.id))
        for job_id in session.jobs.left:
            link.send("job.unsubscribe", {"job_id": job_id}, job_id=job_id)
        return link

    # -- judging why it ended

    def _judge(self, why: Exception) -> None:
        """Raise if another connection would end the same way."""
        session = self.session
        assert session is not None
        if session.over is not None:
            raise self._expired(session.over)
        if isinstance(why, MessageTooBig):
            raise ProtocolError(f"the runtime sent {why}") from why
        if isinstance(why, TransportClosed) and why.code == _TOO_BIG:
            self._refuse_largest(session)
        if isinstance(why, Gap | ProtocolError):
            at, times = self._gaps
            self._gaps = (session.top, times + 1 if at == session.top else 1)
            if self._gaps[1] >= MOST_GAPS:
                raise ProtocolError(str(why)) from why

    def _refuse_largest(self, session: Session) -> None:
        """The runtime minded the size of a message: it must not be sent again."""
        call = session.calls.largest()
        if call is not None:
            size = len(call.payload)
            session.refuse(call, InvalidRequest(f"{size} bytes are more than the runtime takes"))

    def _may_step_back(self, error: ArcpError) -> bool:
        """Whether the resume was refused only because there is nothing to replay."""
        session = self.session
        assert session is not None
        if self._step_back or not session.greeting.dialect.resumes_from_before:
            return False
        self._step_back = session.top > 0 and error.code == ResumeWindowExpired.code
        return self._step_back

    def _given_up(self, why: Exception, patience: float, window: float) -> Exception:
        if patience >= window:
            return self._expired(ResumeWindowExpired(f"no connection for {patience:g} s: {why}"))
        return ConnectionLost(f"the connection was lost, and not back in {patience:g} s: {why}")

    def _expired(self, error: ArcpError) -> ArcpError:
        """Add to the error what is known of the jobs that are lost sight of."""
        assert self.session is not None
        error.details.setdefault(
            "jobs", [job.known() for job in self.session.jobs.running.values()]
        )
        return error


async def _converse(session: Session, link: Link, *, recovering: bool) -> Exception:
    """Use a connection to its end, and return why it ended."""
    async with trio.open_nursery() as nursery:
        if recovering:
            nursery.start_soon(recover, session, link, name="client recovery")
        ended = await link.run()
        nursery.cancel_scope.cancel()
    return ended
