"""Keeps a session connected: opens a connection, and after a loss opens another and resumes."""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import trio

from arcp_trio.client.connection import ClientConnection
from arcp_trio.client.delivery import Delivery
from arcp_trio.client.dialing import Dialer
from arcp_trio.client.errors import (
    ConnectionFailed,
    ConnectionLost,
    ConnectTimedOut,
    Gap,
    ProtocolError,
)
from arcp_trio.client.handshake import Greeting, Resumption, greet, hello
from arcp_trio.client.recovery import recover
from arcp_trio.client.session import ClientSession
from arcp_trio.client.unread import UnreadEvents
from arcp_trio.transport.base import MessageTooBig, Transport, TransportClosed
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire.errors import ArcpError, InvalidRequest, ResumeWindowExpired
from arcp_trio.wire.features import Feature

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 10.0
DEFAULT_WINDOW_SECONDS: Final = 60.0
"""How long a session can be resumed, where the runtime does not say."""
MAX_GAPS: Final = 3
"""After this many resumes with the same gap the runtime is not asked to fill it again."""

_NOT_YET: Final = frozenset({"PERMISSION_DENIED", "INTERNAL_ERROR", "HEARTBEAT_LOST"})
"""Refusals of a resume that are worth another try: some runtimes have not noticed yet that the old
connection is lost."""


class Supervisor:
    """Opens the connections of one client's session, one after the other."""

    def __init__(
        self,
        dialer: Dialer,
        *,
        token: str | None,
        features: Iterable[str],
        delivery: Delivery,
        unread: UnreadEvents,
        max_result_bytes: int,
        reconnect_seconds: float | None,
        now: Callable[[], float],
    ) -> None:
        self.session: ClientSession | None = None
        """The session, from the first welcome on."""
        self.opened = trio.Event()
        """Set when the session is open, or cannot be opened."""
        self.leaving = False
        """Whether the program leaves, so that the end of the connection is not a loss."""
        self._dialer = dialer
        self._openers = deque((dialer.open, *dialer.others))
        """The ways to the runtime; the first one is the next to be tried."""
        self._token = token
        self._features = tuple(features)
        self._delivery = delivery
        self._unread = unread
        self._max_result_bytes = max_result_bytes
        self._reconnect_seconds = reconnect_seconds
        self._now = now
        self._resume_token: str | None = None
        self._gaps = (0, 0)  # after which number the last gap was, and how often in a row
        self._step_back = False  # whether to ask for one frame more: see `resumes_from_before`

    async def run(self) -> None:
        """Stay connected, until a connection ends while the program leaves.

        Raises:
            ConnectionFailed, ArcpError: the session cannot be opened, or cannot be resumed.
        """
        try:
            why = await self._use_any()
            while not self.leaving:
                self._judge(why)
                why = await self._reconnect(why)
        finally:
            self.opened.set()

    # -- connections

    async def _reconnect(self, why: Exception) -> Exception:
        """Open another connection, use it until it ends, and return why it ended.

        Raises:
            ConnectionFailed, ArcpError: the session was not resumed in time, or was refused.
        """
        assert self.session is not None
        window = self.session.greeting.resume_window or DEFAULT_WINDOW_SECONDS
        patience = window if self._reconnect_seconds is None else self._reconnect_seconds
        if not self._dialer.again or patience <= 0 or self._resume_token is None:
            raise ConnectionLost(f"the connection was lost: {why}") from why
        log.info("connection lost (%s); reconnecting", why)
        self.session.connection_states.change(connected=False)
        lost_at = trio.current_time()
        pause = FIRST_PAUSE_SECONDS
        moves_on = isinstance(why, TransportClosed) and why.code == CloseCode.ELSEWHERE
        if moves_on:
            self._openers.rotate(-1)
        while True:
            left = max(0.0, lost_at + patience - trio.current_time())
            wait = min(random.uniform(pause / 2, pause), left)  # noqa: S311 - no secret
            if moves_on and self._dialer.others:
                wait, moves_on = 0.0, False  # that node is gone, and the others are not
            self.session.connection_states.next_attempt = trio.current_time() + wait
            await trio.sleep(wait)
            self.session.connection_states.next_attempt = None
            try:
                return await self._use_any()
            except ConnectionFailed as error:
                why = error
            except ArcpError as error:
                if error.code not in _NOT_YET and not self._may_step_back(error):
                    raise self._expired(error) from error
                why = error
            if trio.current_time() >= lost_at + patience:
                raise self._given_up(why, patience, window) from why
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _use_any(self) -> Exception:
        """Open a connection in the first way that works, use it, and return why it ended.

        Raises:
            ConnectionFailed, ArcpError: no way led to a session, or a refusal counts for all.
        """
        failed: list[ConnectionFailed | ArcpError] = []
        for _ in self._openers.copy():
            try:
                return await self._use_connection()
            except ConnectionFailed as error:
                failed.append(error)
            except ArcpError as error:
                failed.append(error)
                if error.code not in _NOT_YET:
                    break
            self._openers.rotate(-1)
        last = failed[-1]
        if len(failed) == 1 or isinstance(last, ArcpError):
            raise last
        raise type(last)("; ".join(map(str, failed))) from last

    async def _use_connection(self) -> Exception:
        """Open a connection, use it until it ends, and return why it ended.

        Raises:
            ConnectionFailed, ArcpError: there was no connection, or no session on it.
        """
        with trio.CancelScope(deadline=trio.current_time() + self._dialer.seconds) as opening:
            async with self._openers[0]() as transport:
                try:
                    greeting = await greet(transport, self._hello(), self._features)
                except TransportClosed as error:
                    raise ConnectionLost(f"the runtime hung up on hello: {error}") from error
                forgot = self.session is not None and greeting.dialect.forgets_while_away
                session = self._welcome(greeting)
                opening.deadline = math.inf
                connection = self._connection(transport, session)
                session.attach(connection)
                self.opened.set()
                try:
                    return await _converse(session, connection, recovering=forgot)
                finally:
                    session.connection = None
        raise ConnectTimedOut(f"there was no session within {self._dialer.seconds:g} seconds")

    def _hello(self) -> bytes:
        session, resumption = self.session, None
        if session is not None and self._resume_token is not None:
            top = session.jobs.top
            resumption = Resumption(
                session_id=session.id,
                token=self._resume_token,
                after_seq=max(0, top - 1) if self._step_back else top,
            )
        return hello(self._token, self._features, resumption)

    def _welcome(self, greeting: Greeting) -> ClientSession:
        """Return the session that is opened, or resumed, by this greeting."""
        self._resume_token = greeting.resume_token or self._resume_token
        self._step_back = False
        if self.session is None:
            self.session = ClientSession(
                greeting, self._delivery, self._unread, max_result_bytes=self._max_result_bytes
            )
        elif self.session.id != greeting.session_id:
            raise self._expired(ResumeWindowExpired("the runtime began another session"))
        else:
            self.session.resume(greeting)
        return self.session

    def _connection(self, transport: Transport, session: ClientSession) -> ClientConnection:
        features = session.greeting.features
        interval = session.greeting.heartbeat_interval
        return ClientConnection(
            transport,
            session.id,
            interval=(Feature.HEARTBEAT in features and interval) or math.inf,
            ack=Feature.ACK in features,
            take=session.take,
            take_event=session.take_event,
            processed=lambda: self._delivery.processed(session.jobs.top),
            unread=self._unread,
            now=self._now,
        )

    # -- after a connection

    def _judge(self, why: Exception) -> None:
        """Raise if another connection would end for the same reason."""
        session = self.session
        assert session is not None
        if session.refusal is not None:
            raise self._expired(session.refusal)
        if isinstance(why, MessageTooBig):
            raise ProtocolError(f"the runtime sent {why}") from why
        if isinstance(why, TransportClosed) and why.code == CloseCode.TOO_BIG:
            _refuse_largest(session)
        if isinstance(why, Gap | ProtocolError):
            top = session.jobs.top
            at, times = self._gaps
            self._gaps = (top, times + 1 if at == top else 1)
            if self._gaps[1] >= MAX_GAPS:
                raise ProtocolError(str(why)) from why

    def _may_step_back(self, error: ArcpError) -> bool:
        """Return whether the resume was refused only because there is no frame to replay."""
        session = self.session
        assert session is not None
        if self._step_back or not session.greeting.dialect.resumes_from_before:
            return False
        self._step_back = session.jobs.top > 0 and error.code == ResumeWindowExpired.code
        return self._step_back

    def _given_up(self, why: Exception, patience: float, window: float) -> Exception:
        if patience >= window:
            return self._expired(ResumeWindowExpired(f"no connection for {patience:g} s: {why}"))
        return ConnectionLost(f"the connection was lost, and not back in {patience:g} s: {why}")

    def _expired(self, error: ArcpError) -> ArcpError:
        """Add to the error what is known of the jobs that the program loses."""
        assert self.session is not None
        running = self.session.jobs.running.values()
        error.details.setdefault("jobs", [stream.summary() for stream in running])
        return error


def _refuse_largest(session: ClientSession) -> None:
    """Fail the largest call: the runtime closed the connection because of a message's size."""
    call = session.calls.largest()
    if call is not None:
        size = len(call.payload)
        session.calls.fail(call, InvalidRequest(f"{size} bytes are more than the runtime takes"))


async def _converse(
    session: ClientSession, connection: ClientConnection, *, recovering: bool
) -> Exception:
    """Use a connection until it ends, and return why it ended."""
    async with trio.open_nursery() as nursery:
        if recovering:
            nursery.start_soon(recover, session, name="client recovery")
        ended = await connection.run()
        nursery.cancel_scope.cancel()
    return ended
