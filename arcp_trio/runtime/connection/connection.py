"""A connection: moves frames between one transport and one session. Nothing is lost with it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.connection.handshake import open_session
from arcp_trio.runtime.connection.heartbeat import Heartbeat, Loss
from arcp_trio.runtime.connection.pace import Malformed, Pace
from arcp_trio.runtime.connection.reader import Reader, read_frame, request_id
from arcp_trio.runtime.connection.sender import Sender
from arcp_trio.runtime.connection.writer import FrameWriter
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.metrics import Failure
from arcp_trio.runtime.notices import frame, refusal
from arcp_trio.runtime.session.unsent import GOING_AWAY, NORMAL, POLICY, TOO_BIG, Farewell, Unsent
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.interface import Replay
from arcp_trio.transport.base import MessageTooBig, TransportClosed
from arcp_trio.wire import envelope
from arcp_trio.wire.dialects import STANDARD, Dialect
from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import (
    ArcpError,
    HeartbeatLost,
    InvalidRequest,
    Unauthenticated,
)
from arcp_trio.wire.features import Feature
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.runtime.session.sessions import Sessions
    from arcp_trio.transport.base import Transport

log = logging.getLogger(__name__)


class Connection:
    """One transport's life: the handshake, then a conversation, then the farewell."""

    def __init__(
        self,
        core: Core,
        sessions: Sessions,
        transport: Transport,
        welcomed: Callable[[], None] | None = None,
    ) -> None:
        self.dialect: Dialect = STANDARD
        self.principal: str | None = None
        """Who said hello."""
        self.over = False
        self.wake = Wake()
        """Wakes the sender."""
        self._core = core
        self._sessions = sessions
        self._transport = transport
        self._welcomed = welcomed
        self._arcp = envelope.VERSION
        self._session: Session | None = None
        self._session_id: str | None = None
        """Of the session that the client was welcomed to last."""
        self._begun = trio.Event()
        self._scope = trio.CancelScope()
        """Around everything but the farewell."""
        self._farewell = Farewell(NORMAL, "")
        self._malformed = Malformed(core.limits.malformed_frames)
        self._pace = Pace(core.limits.messages_per_second)
        self._fresh = False

    @property
    def peer(self) -> str:
        """Where the client is."""
        return self._transport.peer

    @property
    def private(self) -> bool:
        """Whether nobody can read along on the way to the client, as far as is known."""
        return self._transport.private

    # -- its life

    async def run(self, deadline: float) -> None:
        """Attend to the transport until either side ends it."""
        log.info("connection accepted", extra={"peer": self.peer})
        begun = trio.current_time()
        try:
            with self._scope:
                await self._attend(deadline)
        except TransportClosed:
            pass
        finally:
            self.over = True
            self._leave_session()
            bound = trio.current_time() + self._core.limits.close_seconds
            with trio.CancelScope(deadline=min(bound, self._core.farewells_end), shield=True):
                await self._transport.close(self._farewell.code, self._farewell.reason)
            log.info("connection ended", extra=self._end_facts(begun))

    def _end_facts(self, begun: float) -> dict[str, object]:
        return {
            "peer": self.peer,
            "session_id": self._session_id,
            "close_code": self._farewell.code,
            "why": self._farewell.reason or "the client has gone",
            "seconds": round(trio.current_time() - begun, 3),
        }

    async def _attend(self, deadline: float) -> None:
        asked: Envelope | None = None
        while (session := await self._let_in(deadline, asked)) is not None:
            if self._welcomed is not None:
                self._welcomed()
            asked = await self._converse(session)
            if asked is None:
                return
            deadline = trio.current_time() + self._core.limits.handshake_seconds

    async def _let_in(self, deadline: float, first: Envelope | None) -> Session | None:
        """Open the session that a frame asks for, the first to come if there is none yet.

        None if there is no such session, which the client is told.
        """
        with trio.CancelScope(deadline=deadline):
            try:
                if first is None:
                    first = await self._receive_first(again=deadline == math.inf)
                if first is None:
                    return None
                self._arcp = first.arcp
                self._begun = trio.Event()
                session = await open_session(self._core, self._sessions, self, first)
                await self._begun.wait()
            except ArcpError as error:
                await self._turn_away(error, first)
                return None
            else:
                return session
        with trio.move_on_after(self._core.limits.close_seconds):
            await self._turn_away(Unauthenticated("no session was opened in time"), first)
        self.failed(Failure.HANDSHAKE_SECONDS)
        return None

    async def _receive_first(self, *, again: bool) -> Envelope | None:
        """The frame that asks for a session; None if it is refused for its size, unread.

        If `again`, what is no frame is answered, and the next one is waited for.
        """
        while True:
            try:
                return await self._receive_hello()
            except MessageTooBig:
                await self._turn_away_first()
                return None
            except InvalidRequest as error:
                if not again or self._malformed.too_many():
                    raise
                await self._refuse(error)

    async def _receive_hello(self) -> Envelope | None:
        text = await self._transport.receive()
        size = len(text.encode() if isinstance(text, str) else text)
        if size > self._core.limits.first_frame_bytes:
            await self._turn_away_first()
            return None
        return read_frame(text, self._core.limits.json_depth)

    async def _turn_away_first(self) -> None:
        """The frame that asks for a session is too large, and nobody has looked at it."""
        limits = self._core.limits
        self.failed(Failure.FRAME_BYTES_IN)
        if limits.first_frame_bytes > limits.frame_bytes_in:
            error = limit_hit("frame_bytes_in", limits.frame_bytes_in)
        else:
            error = limit_hit("first_frame_bytes", limits.first_frame_bytes)
        await self._turn_away(error, code=TOO_BIG)

    async def _turn_away(
        self, error: ArcpError, request: Envelope | None = None, code: int = POLICY
    ) -> None:
        """Say why there is no session, and have the socket closed (§6.1)."""
        refused: dict[str, object] = {"peer": self.peer, "principal": self.principal}
        refused |= {"code": error.code, "error": error.message}
        # Somebody without a good token is worth a look, if it happens often.
        level = logging.WARNING if isinstance(error, Unauthenticated) else logging.INFO
        log.log(level, "session refused", extra=refused)
        self._core.metrics.refused(error)
        self._farewell = Farewell(GOING_AWAY if self._core.closing else code, error.code)
        await self._refuse(error, request)

    async def _refuse(self, error: ArcpError, request: Envelope | None = None) -> None:
        """Answer what came while there is no session."""
        frame_id = request_id(error) if request is None else request.id
        # Some clients read no frame without a session id, not even this one.
        head = envelope.plain_head(self._session_id or new_id("sess_"), self._arcp)
        await self._transport.send([head + refusal(error, request_id=frame_id)])

    def join(self, session: Session, *, fresh: bool = False) -> None:
        """The handshake found the session; it counts as connected from here on."""
        self._leave_session()
        self._session, self._fresh = session, fresh
        session.give_to(self)
        self._sessions.connection_began(session.principal)

    def begin(self, tail: Unsent, welcome: bytes, replay: Replay, after_seq: int) -> None:
        """The scribe attached the session: frames come from this replay, then from this tail."""
        assert self._session is not None
        writer = FrameWriter(self._transport, self._session.id, self._arcp, self.dialect, after_seq)
        self._tail = tail
        self._sender = Sender(
            self._sessions.jobs, self, self._session, writer, welcome, replay, tail
        )
        self._begun.set()

    def end(self, code: int, reason: str) -> None:
        """End it: at once, without another frame but the Close."""
        self._farewell = Farewell(code, reason)
        self._scope.cancel(reason=reason)

    def end_without_session(self, farewell: Farewell) -> None:
        """No session will be opened any more: end it if it has none by now."""
        if not self._begun.is_set():
            self.end(farewell.code, farewell.reason)

    def hurry(self) -> None:
        """Its farewell is due: a client that does not read it is not waited for much longer."""
        self._scope.deadline = trio.current_time() + self._core.limits.close_seconds

    async def part(self, reason: str, *, code: int = POLICY, last: bytes | None = None) -> None:
        """End it behind what is on its way: cutting off a write would cost the Close its place."""
        self._tail.end(Farewell(code, reason, last))
        await trio.sleep(self._core.limits.close_seconds)
        self.end(code, reason)

    def failed(self, reason: str) -> None:
        """Count why it ended badly."""
        self._core.metrics.connection_failed(reason)

    def fail(self, error: ArcpError, code: int) -> None:
        """End it behind what is on its way, saying why; but say it once."""
        if self._tail.farewell is None:
            self._tail.end(Farewell(code, error.message, refusal(error)))

    def _leave_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.detach(self)
            self._sessions.connection_ended(session.principal)

    # -- the conversation

    async def _converse(self, session: Session) -> Envelope | None:
        """Move frames until the end, or until a frame asks for another session: return that."""
        heartbeat = Heartbeat(self._core.limits.heartbeat_seconds, self._transport)
        reader = Reader(
            self._core,
            self,
            self._transport,
            session,
            self._sender,
            heartbeat,
            malformed=self._malformed,
            pace=self._pace,
            fresh=self._fresh,
        )
        name = self._session_id = session.id
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, reader, nursery, name=f"sender of {name}")
            nursery.start_soon(self._beat, session, heartbeat, name=f"heartbeat of {name}")
            await self._read(reader)
        if reader.following is not None:
            # The session that was only made to say session.resume on goes with it.
            session.over = True
            self._leave_session()
        return reader.following

    async def _read(self, reader: Reader) -> None:
        try:
            await reader.run()
        except MessageTooBig:
            self.failed(Failure.FRAME_BYTES_IN)
            error = limit_hit("frame_bytes_in", self._core.limits.frame_bytes_in)
            await self.part("message too big", code=TOO_BIG, last=refusal(error))
        except TransportClosed:
            self.end(NORMAL, "")

    async def _send(self, reader: Reader, nursery: trio.Nursery) -> None:
        sender = self._sender
        try:
            await sender.welcome()
            reader.unheard = self._transport.unread
            await sender.run()
        except TransportClosed:
            self.end(NORMAL, "")
        if reader.following is not None:
            nursery.cancel_scope.cancel(reason="another session is asked for")

    async def _beat(self, session: Session, heartbeat: Heartbeat) -> None:
        negotiated = Feature.HEARTBEAT in session.features
        loss = await heartbeat.lost(negotiated=negotiated, ping=self._ping)
        self.failed(Failure.HEARTBEAT_LOST)
        if loss is Loss.SILENT:
            # Announced, though it may reach nobody (§6.4); the jobs notice nothing.
            self._sender.say(refusal(HeartbeatLost(loss.value)))
            await self.part("heartbeat lost")
        self.end(POLICY, "heartbeat lost")

    def _ping(self) -> None:
        sent_at = rfc3339(self._core.clock.now())
        self._sender.say(frame("session.ping", {"nonce": new_id("p_"), "sent_at": sent_at}))
