"""What comes in on a connection: its own business is answered here, the session's handed on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.metrics import Failure
from arcp_trio.runtime.notices import frame
from arcp_trio.runtime.session.clerk import Request
from arcp_trio.runtime.session.unsent import NORMAL
from arcp_trio.wire import envelope
from arcp_trio.wire.envelope import Envelope, MalformedFrame
from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.features import Feature
from arcp_trio.wire.messages import Ack, Bye, Close, Ping, Pong, SessionResume, parse
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.connection.connection import Connection
    from arcp_trio.runtime.connection.heartbeat import Heartbeat
    from arcp_trio.runtime.connection.pace import Malformed, Pace
    from arcp_trio.runtime.connection.sender import Sender
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.transport.base import Transport
    from arcp_trio.wire.errors import ArcpError
    from arcp_trio.wire.messages import Message


def read_frame(text: str | bytes, max_depth: int) -> Envelope:
    """Decode a frame as it came.

    Raises:
        InvalidRequest: it is none.
    """
    if isinstance(text, bytes):
        raise InvalidRequest("a binary frame: ARCP frames are text")
    return envelope.decode(text, max_depth=max_depth)


def request_id(error: Message | ArcpError | None) -> str | None:
    """The id of a frame that could not be read as one, if that could."""
    return error.request_id if isinstance(error, MalformedFrame) else None


class Reader:
    """Reads one session's frames from one connection, one after the other."""

    def __init__(
        self,
        core: Core,
        connection: Connection,
        transport: Transport,
        session: Session,
        sender: Sender,
        heartbeat: Heartbeat,
        *,
        malformed: Malformed,
        pace: Pace,
        fresh: bool,
    ) -> None:
        self.following: Envelope | None = None
        """What asked for another session, and so ended this conversation."""
        self.unheard: float = math.inf
        """Messages that came before the client can have read its welcome."""
        self._core = core
        self._connection = connection
        self._transport = transport
        self._session = session
        self._sender = sender
        self._heartbeat = heartbeat
        self._malformed = malformed
        self._pace = pace
        self._fresh = fresh
        """The session is new, nothing was asked of it: it may be exchanged for one to resume."""

    async def run(self) -> None:
        """Read until the client is to say no more.

        Raises:
            TransportClosed: it cannot.
        """
        while await self._see_to(await self._receive()):
            pause = self._pace.step()
            if pause > 0:
                # At most a second: shorter than any silence that counts.
                await trio.sleep(pause)

    async def _receive(self) -> str | bytes:
        text = await self._transport.receive()
        self._heartbeat.heard()
        if self.unheard:
            self.unheard -= 1
        else:
            self._session.heard(self._connection)
        return text

    async def _see_to(self, text: str | bytes) -> bool:
        """See to a frame; False when the client is to say no more."""
        received: Envelope | None = None
        message: Message | ArcpError | None
        try:
            received = read_frame(text, self._core.limits.json_depth)
            message = _sensible(parse(received))
        except InvalidRequest as error:
            message = error
            if self._malformed.too_many():
                self._connection.failed(Failure.MALFORMED_FRAMES)
                await self._connection.part("malformed_frames")
                return False
        match message:
            case None | Pong():
                pass
            case Ping():
                await self._pong(message)
            case Ack():
                if Feature.ACK in self._session.features:
                    # Nothing that was not sent can be acknowledged (§6.5).
                    sent_seq = self._sender.writer.sent_seq
                    self._session.ack(min(message.last_processed_seq, sent_seq))
            case Bye():
                self._connection.end(NORMAL, "bye")
                return False
            case SessionResume() if self._fresh:
                self.following = received
                self._sender.let_go()
                return False
            case _:
                self._fresh = False
                await self._hand_on(received, message, len(text))
                return not isinstance(message, Close)
        return True

    async def _hand_on(
        self, received: Envelope | None, message: Message | ArcpError, size: int
    ) -> None:
        frame_id = request_id(message) if received is None else received.id
        trace = None if received is None else received.traceparent or received.trace_id
        with self._heartbeat.not_listening():
            request = Request(self._connection, frame_id, trace, message, size)
            await self._session.command(request, size)

    async def _pong(self, ping: Ping) -> None:
        received_at = rfc3339(self._core.clock.now())
        answer = {"ping_nonce": ping.nonce, "received_at": received_at}
        self._sender.say(frame("session.pong", answer))
        with self._heartbeat.not_listening():
            await self._sender.writer.room()


def _sensible(message: Message | None) -> Message | None:
    if isinstance(message, Ack) and message.last_processed_seq < 0:
        raise InvalidRequest("expected a number from 0 @ $.payload.last_processed_seq")
    return message
