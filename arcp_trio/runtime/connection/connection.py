"""A connection: moves frames between one transport and one session. Nothing is lost with it."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.connection.conversation import Conversation
from arcp_trio.runtime.connection.handshake import Handshake, Opened
from arcp_trio.runtime.connection.reader import (
    FirstFrameTooBig,
    Reader,
    frame_id,
)
from arcp_trio.runtime.connection.sender import Sender
from arcp_trio.runtime.farewell import Closing, Farewell
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.metrics import Failure
from arcp_trio.runtime.notices import refusal
from arcp_trio.transport.base import HasPings, MessageTooBig, TransportClosed
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire import envelope
from arcp_trio.wire.errors import ArcpError, InternalError, InvalidRequest, Unauthenticated
from arcp_trio.wire.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from arcp_trio.runtime.connection.welcomes import Welcomes
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.session.attachment import Attachment
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.runtime.session.sessions import Sessions
    from arcp_trio.transport.base import Transport
    from arcp_trio.wire.envelope import Envelope

log = logging.getLogger(__name__)


class Connection:
    """One transport's life: a handshake, then a conversation, then a farewell."""

    def __init__(
        self,
        core: Core,
        sessions: Sessions,
        welcomes: Welcomes,
        transport: Transport,
        welcomed: Callable[[], None] | None = None,
    ) -> None:
        self._core = core
        self._sessions = sessions
        self._transport = transport
        self._welcomed = welcomed
        self._closing = Closing()
        self._reader = Reader(transport, core.limits, core.long_steps)
        self._handshake = Handshake(core, sessions, welcomes, transport, self._closing)
        self._attached: tuple[Session, Attachment] | None = None
        """The session it has now."""
        self._session_id: str | None = None
        """The session that the client was welcomed to last."""
        self._arcp = envelope.VERSION

    # -- its life

    async def run(self, deadline: float) -> None:
        """Attend to the transport until either side ends it."""
        peer, began = self._transport.peer, trio.current_time()
        log.debug("connection accepted", extra={"peer": peer})
        try:
            with self._closing.scope:
                await self._attend(deadline)
        except TransportClosed:
            pass
        except Exception:
            self._closing.with_farewell(CloseCode.FAILED, "the connection failed")
            raise
        finally:
            self._leave_session()
            farewell = self._closing.farewell
            bound = trio.current_time() + self._core.limits.close_seconds
            with trio.CancelScope(deadline=min(bound, self._core.farewells_end), shield=True):
                await self._transport.close(farewell.code, farewell.reason)
            ended = {
                "principal": self._handshake.principal,
                "peer": peer,
                "seconds": round(trio.current_time() - began, 3),
                "close_code": farewell.code,
                "why": farewell.reason or "the client has gone",
                "session_id": self._session_id,
            }
            # The one line at info about a session whose connection was never lost.
            level = logging.DEBUG if self._session_id is None else logging.INFO
            log.log(level, "connection ended", extra=ended)

    async def _attend(self, deadline: float) -> None:
        asked: Envelope | None = None
        while (opened := await self._let_in(deadline, asked)) is not None:
            session = opened.session
            self._attached, self._session_id = (session, opened.attachment), session.id
            if self._welcomed is not None:
                self._welcomed()
            core, transport = self._core, self._transport
            sender = Sender(opened, transport, self._arcp, self._sessions.jobs)
            conversation = Conversation(core, transport, self._reader, opened, sender)
            del opened  # its welcome is large, and the conversation may be long
            asked = await conversation.run()
            if asked is None:
                return
            # This session was made by a hello that a session.resume followed.
            session.lose("exchanged for another")
            self._leave_session()
            deadline = trio.current_time() + self._core.limits.handshake_seconds

    def _leave_session(self) -> None:
        attached, self._attached = self._attached, None
        if attached is not None:
            self._sessions.leave(*attached)

    def end_without_session(self, farewell: Farewell) -> None:
        """End the connection unless a session is attached: no session is opened from now on."""
        if not self._closing.session_has_it:
            self.end_now(farewell)

    def end_now(self, farewell: Farewell) -> None:
        """End the connection at once: nothing is sent but the Close."""
        self._closing.now(farewell.code, farewell.reason)

    # -- the handshake

    async def _let_in(self, deadline: float, first: Envelope | None) -> Opened | None:
        """Open the session that a frame asks for; without one, the first frame to come.

        Return None if there is no such session, after telling the client so.
        """
        with trio.CancelScope(deadline=deadline):
            try:
                if first is None:
                    first = await self._receive_first(again=deadline == math.inf)
                self._arcp = first.arcp
                return await self._handshake.open(first)
            except (FirstFrameTooBig, MessageTooBig):
                await self._turn_away_large_frame()
                return None
            except ArcpError as error:
                await self._turn_away(error, first)
                return None
        late: ArcpError = Unauthenticated("no session was opened in time")
        if self._handshake.principal is not None:  # it is not the client that is late
            late = InternalError("the session could not be opened in time: try again")
        with trio.move_on_after(self._core.limits.close_seconds):
            await self._turn_away(late, first)
        self._core.metrics.connection_failed(Failure.HANDSHAKE_SECONDS)
        return None

    async def _receive_first(self, *, again: bool) -> Envelope:
        """Return the frame that asks for a session.

        If `again`, a malformed frame is answered and the next one is waited for.
        """
        while True:
            try:
                return await self._reader.first()
            except InvalidRequest as error:
                if not again or self._reader.too_many_malformed():
                    raise
                await self._refuse(error)

    async def _turn_away_large_frame(self) -> None:
        """Refuse a first frame for its size; nobody has looked at it."""
        limits = self._core.limits
        self._core.metrics.connection_failed(Failure.FRAME_BYTES_IN)
        if limits.first_frame_bytes > limits.frame_bytes_in:
            error = limit_hit("frame_bytes_in", limits.frame_bytes_in)
        else:
            error = limit_hit("first_frame_bytes", limits.first_frame_bytes)
        await self._turn_away(error, code=CloseCode.TOO_BIG)

    async def _turn_away(
        self, error: ArcpError, request: Envelope | None = None, code: int = CloseCode.POLICY
    ) -> None:
        """Say why there is no session, and have the socket closed (§6.1)."""
        refused = {
            "peer": self._transport.peer,
            "principal": self._handshake.principal,
            "code": error.code,
            "error": error.message,
        }
        level = logging.INFO
        if isinstance(error, Unauthenticated):
            # A client without a valid token is worth an operator's look, if it happens often.
            level = logging.WARNING
        elif isinstance(self._transport, HasPings) and self._transport.gone:
            # One that has given up may have its session at another connection.
            level = logging.DEBUG
        log.log(level, "session refused", extra=refused)
        self._core.metrics.refused(error)
        code = CloseCode.GOING_AWAY if self._core.closing else code
        self._closing.with_farewell(code, error.code)
        await self._refuse(error, request)

    async def _refuse(self, error: ArcpError, request: Envelope | None = None) -> None:
        """Answer a frame while there is no session."""
        request_id = frame_id(error) if request is None else request.id
        # Some clients read no frame without a session id, not even this one.
        head = envelope.plain_head(self._session_id or new_id("sess_"), self._arcp)
        await self._transport.send([head + refusal(error, request_id=request_id)])
