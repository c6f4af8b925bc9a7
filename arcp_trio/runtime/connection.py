"""A connection: moves frames between one transport and one session. Nothing is lost with it."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.clerk import Request
from arcp_trio.runtime.handshake import open_session
from arcp_trio.runtime.heartbeat import Heartbeat, Loss
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.metrics import Failure
from arcp_trio.runtime.notices import frame, refusal
from arcp_trio.runtime.pace import Pace
from arcp_trio.runtime.sealing import reveal
from arcp_trio.runtime.tail import Farewell, Tail
from arcp_trio.runtime.trouble import FAILED, store_trouble
from arcp_trio.runtime.wake import Wake
from arcp_trio.runtime.writing import FrameWriter
from arcp_trio.store.errors import StoreError
from arcp_trio.store.interface import JournalTrimmed, LogTrimmed, Replay
from arcp_trio.store.records import SEAL
from arcp_trio.transport.base import MessageTooBig, TransportClosed
from arcp_trio.wire import envelope
from arcp_trio.wire.dialects import STANDARD, Dialect
from arcp_trio.wire.envelope import Envelope, MalformedFrame
from arcp_trio.wire.errors import (
    ArcpError,
    HeartbeatLost,
    InvalidRequest,
    ResumeWindowExpired,
    Unauthenticated,
)
from arcp_trio.wire.features import Feature
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.messages import Ack, Bye, Close, Ping, Pong, SessionResume, parse
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.session import Session
    from arcp_trio.transport.base import Transport
    from arcp_trio.wire.messages import Message

log = logging.getLogger(__name__)

WRITE_FRAMES = 512
WRITE_BYTES = 256 * 1024
"""One write is what is there, up to these."""

MALFORMED_SECONDS = 10.0
"""The span in which `malformed_frames` are counted."""

NORMAL, GOING_AWAY, POLICY, TOO_BIG = 1000, 1001, 1008, 1009


class Connection:
    """Reader, sender and heartbeat of one transport, and the handshake before them."""

    def __init__(
        self, core: Core, transport: Transport, welcomed: Callable[[], None] | None = None
    ) -> None:
        self.dialect: Dialect = STANDARD
        self.principal: str | None = None
        """Who said hello."""
        self.over = False
        self.wake = Wake()
        """Wakes the sender."""
        self._core = core
        self._transport = transport
        self._welcomed = welcomed
        self._arcp = envelope.VERSION
        self._session: Session | None = None
        self._session_id: str | None = None
        """Of the session that the client was welcomed to last."""
        self._begun = trio.Event()
        self._scope = trio.CancelScope()
        """Around everything but the farewell."""
        self._conversation = trio.CancelScope()
        self._farewell = Farewell(NORMAL, "")
        self._pace = Pace(core.limits.messages_per_second)
        self._malformed: deque[float] = deque()
        self._unheard = math.inf
        """Messages that came before the client can have read its welcome."""
        self._fresh = False
        """The session is new, nothing was asked of it: it may be exchanged for one to resume."""
        self._next: Envelope | None = None

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
        first: Envelope | None = None
        with trio.CancelScope(deadline=deadline) as handshake:
            try:
                first = await self._receive_first(again=deadline == math.inf)
                while first is not None:
                    self._arcp = first.arcp
                    self._begun = trio.Event()
                    session = await open_session(self._core, self, first)
                    await self._begun.wait()
                    handshake.deadline = math.inf
                    if self._welcomed is not None:
                        self._welcomed()
                    first = await self._converse(session)
                    seconds = self._core.limits.handshake_seconds
                    handshake.deadline = trio.current_time() + seconds
            except ArcpError as error:
                await self._turn_away(error, first)
        if handshake.cancelled_caught:
            with trio.move_on_after(self._core.limits.close_seconds):
                await self._turn_away(Unauthenticated("no session was opened in time"), first)
            self._failed(Failure.HANDSHAKE_SECONDS)

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
                if not again or self._too_many_malformed():
                    raise
                await self._refuse(error)

    async def _receive_hello(self) -> Envelope | None:
        text = await self._transport.receive()
        size = len(text.encode() if isinstance(text, str) else text)
        if size > self._core.limits.first_frame_bytes:
            await self._turn_away_first()
            return None
        if isinstance(text, bytes):
            raise _binary()
        return envelope.decode(text, max_depth=self._core.limits.json_depth)

    async def _turn_away_first(self) -> None:
        """The frame that asks for a session is too large, and nobody has looked at it."""
        limits = self._core.limits
        self._failed(Failure.FRAME_BYTES_IN)
        if limits.first_frame_bytes > limits.frame_bytes_in:
            error = self._too_big()
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
        request_id = request.id if request is not None else _request_id(error)
        # Some clients read no frame without a session id, not even this one.
        head = envelope.plain_head(self._session_id or new_id("sess_"), self._arcp)
        await self._transport.send([head + refusal(error, request_id=request_id)])

    def _too_big(self) -> ArcpError:
        most = self._core.limits.frame_bytes_in
        return limit_hit("frame_bytes_in", most)

    def join(self, session: Session, *, fresh: bool = False) -> None:
        """The handshake found the session; it counts as connected from here on."""
        self._leave_session()
        self._session, self._fresh = session, fresh
        session.give_to(self)
        self._core.sessions.connection_began(session.principal)

    def begin(self, tail: Tail, welcome: bytes, replay: Replay, after_seq: int) -> None:
        """The scribe attached the session: frames come from this replay, then from this tail."""
        assert self._session is not None
        self._welcome, self._replay, self._tail = welcome, replay, tail
        self._writer = FrameWriter(
            self._transport, self._session.id, self._arcp, self.dialect, after_seq
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

    async def _part(self, reason: str, *, code: int = POLICY, last: bytes | None = None) -> None:
        """End it behind what is on its way: cutting off a write would cost the Close its place."""
        self._tail.end(Farewell(code, reason, last))
        await trio.sleep(self._core.limits.close_seconds)
        self.end(code, reason)

    def _failed(self, reason: str) -> None:
        self._core.metrics.connection_failed(reason)

    def fail(self, error: ArcpError, code: int) -> None:
        """End it behind what is on its way, saying why; but say it once."""
        if self._tail.farewell is None:
            self._tail.end(Farewell(code, error.message, refusal(error)))

    def _leave_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.detach(self)
            self._core.sessions.connection_ended(session.principal)

    async def _converse(self, session: Session) -> Envelope | None:
        """Move frames until the end, or until a frame asks for another session: return that."""
        heartbeat = Heartbeat(self._core.limits.heartbeat_seconds, self._transport)
        self._unheard = math.inf
        async with trio.open_nursery() as nursery:
            self._conversation = nursery.cancel_scope
            name = self._session_id = session.id
            nursery.start_soon(self._read, session, heartbeat, name=f"reader of {name}")
            nursery.start_soon(self._send, session, name=f"sender of {name}")
            nursery.start_soon(self._beat, session, heartbeat, name=f"heartbeat of {name}")
        following, self._next = self._next, None
        if following is not None:
            # The session that was only made to say session.resume on goes with it.
            session.over = True
            self._leave_session()
        return following

    # -- reading

    async def _read(self, session: Session, heartbeat: Heartbeat) -> None:
        try:
            while await self._read_one(session, heartbeat):
                pause = self._pace.step()
                if pause > 0:
                    with heartbeat.not_listening():
                        await trio.sleep(pause)
        except MessageTooBig:
            self._failed(Failure.FRAME_BYTES_IN)
            await self._part("message too big", code=TOO_BIG, last=refusal(self._too_big()))
        except TransportClosed:
            self.end(NORMAL, "")

    async def _read_one(self, session: Session, heartbeat: Heartbeat) -> bool:
        """Read a frame and see to it; False when the client is to say no more."""
        text = await self._transport.receive()
        self._heard(session, heartbeat)
        received: Envelope | None = None
        message: Message | ArcpError | None
        try:
            if isinstance(text, bytes):
                raise _binary()
            received = envelope.decode(text, max_depth=self._core.limits.json_depth)
            message = _sensible(parse(received))
        except InvalidRequest as error:
            message = error
            if self._too_many_malformed():
                self._failed(Failure.MALFORMED_FRAMES)
                await self._part("malformed_frames")
                return False
        match message:
            case None | Pong():
                pass
            case Ping():
                self._pong(message)
                with heartbeat.not_listening():
                    await self._writer.room()
            case Ack():
                if Feature.ACK in session.features:
                    # Nothing that was not sent can be acknowledged (§6.5).
                    session.ack(min(message.last_processed_seq, self._writer.sent_seq))
            case Bye():
                self.end(NORMAL, "bye")
                return False
            case SessionResume() if self._fresh:
                self._next = received  # the sender lets go between two writes
                self.wake.set()
                return False
            case _:
                self._fresh = False
                request_id = _request_id(message) if received is None else received.id
                trace = None if received is None else received.traceparent or received.trace_id
                with heartbeat.not_listening():
                    await session.command(Request(self, request_id, trace, message))
                return not isinstance(message, Close)
        return True

    def _heard(self, session: Session, heartbeat: Heartbeat) -> None:
        heartbeat.heard()
        if self._unheard:
            self._unheard -= 1
        else:
            session.heard(self)

    def _pong(self, ping: Ping) -> None:
        received_at = rfc3339(self._core.clock.now())
        self._say(frame("session.pong", {"ping_nonce": ping.nonce, "received_at": received_at}))

    def _too_many_malformed(self) -> bool:
        now = trio.current_time()
        self._malformed.append(now)
        while self._malformed[0] < now - MALFORMED_SECONDS:
            self._malformed.popleft()
        return len(self._malformed) > self._core.limits.malformed_frames

    # -- sending

    def _say(self, tail: bytes) -> None:
        self._writer.say(tail)
        self.wake.set()

    async def _send(self, session: Session) -> None:
        try:
            await self._writer.welcome(self._welcome)
            self._unheard = self._transport.unread
            if await self._send_replay(session):
                await self._follow_tail()
        except TransportClosed:
            self.end(NORMAL, "")

    async def _send_replay(self, session: Session) -> bool:
        try:
            live = self._core.jobs.live
            while frames := await self._replay.next(WRITE_FRAMES, WRITE_BYTES):
                if any(tail[0] == SEAL for _, tail in frames):
                    frames = [(seq, reveal(tail, session, live)) for seq, tail in frames]
                await self._writer.write(frames)
        except StoreError:
            log.exception("replay failed", extra=session.facts)
            self.fail(store_trouble(), FAILED)
            assert self._tail.farewell is not None
            await self._take_leave(self._tail.farewell)
            return False
        except (JournalTrimmed, LogTrimmed) as gone:
            job_id = gone.job_id if isinstance(gone, JournalTrimmed) else None
            error = ResumeWindowExpired(f"events are gone before they were sent: {gone}")
            await self._writer.write([(0, refusal(error, job_id=job_id))])
            self.end(POLICY, "events are gone")
            return False
        return True

    async def _follow_tail(self) -> None:
        tail = self._tail
        while True:
            frames = tail.take(WRITE_FRAMES, WRITE_BYTES)
            if frames or self._writer.has_something_to_say:
                await self._writer.write(frames)
            elif tail.farewell is not None:
                await self._take_leave(tail.farewell)
                return
            elif self._next is not None:
                self._conversation.cancel(reason="another session is asked for")
                return
            else:
                await self.wake.wait()

    async def _take_leave(self, farewell: Farewell) -> None:
        if farewell.last is not None:
            await self._writer.write([(0, farewell.last)])
        self.end(farewell.code, farewell.reason)

    # -- heartbeat

    async def _beat(self, session: Session, heartbeat: Heartbeat) -> None:
        negotiated = Feature.HEARTBEAT in session.features
        loss = await heartbeat.lost(negotiated=negotiated, ping=self._ping)
        self._failed(Failure.HEARTBEAT_LOST)
        if loss is Loss.SILENT:
            # Announced, though it may reach nobody (§6.4); the jobs notice nothing.
            self._say(refusal(HeartbeatLost(loss.value)))
            await self._part("heartbeat lost")
        self.end(POLICY, "heartbeat lost")

    def _ping(self) -> None:
        sent_at = rfc3339(self._core.clock.now())
        self._say(frame("session.ping", {"nonce": new_id("p_"), "sent_at": sent_at}))


def _sensible(message: Message | None) -> Message | None:
    if isinstance(message, Ack) and message.last_processed_seq < 0:
        raise InvalidRequest("expected a number from 0 @ $.payload.last_processed_seq")
    return message


def _binary() -> InvalidRequest:
    return InvalidRequest("a binary frame: ARCP frames are text")


def _request_id(error: Message | ArcpError | None) -> str | None:
    """The id of a frame that could not be read as one, if that could."""
    return error.request_id if isinstance(error, MalformedFrame) else None
