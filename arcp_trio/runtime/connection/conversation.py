"""A connection while a session is attached to it: frames both ways, and the heartbeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.connection.heartbeat import Due, Heartbeat
from arcp_trio.runtime.connection.reader import TooManyMalformed
from arcp_trio.runtime.farewell import Farewell
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.metrics import Failure
from arcp_trio.runtime.notices import frame, refusal
from arcp_trio.runtime.session.clerk import Request
from arcp_trio.runtime.usage import serve_principal
from arcp_trio.transport.base import HasPings, MessageTooBig, TransportClosed
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.wire.errors import HeartbeatLost, Unauthenticated
from arcp_trio.wire.features import Feature
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.messages import Ack, Bye, Close, Ping, Pong, SessionResume
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.connection.handshake import Opened
    from arcp_trio.runtime.connection.reader import Reader, Received
    from arcp_trio.runtime.connection.sender import Sender
    from arcp_trio.runtime.core import Core
    from arcp_trio.transport.base import Transport
    from arcp_trio.wire.envelope import Envelope


class Conversation:
    """Answers what concerns the connection alone, and hands the session's commands on."""

    def __init__(
        self, core: Core, transport: Transport, reader: Reader, opened: Opened, sender: Sender
    ) -> None:
        self._core = core
        self._transport = transport
        self._reader = reader
        self._session = opened.session
        self._usage = core.usages.of(opened.session.principal)
        self._with_pings = transport if isinstance(transport, HasPings) else None
        if self._with_pings is not None:
            self._with_pings.share_pace(self._usage.parts_pace)
        self._attachment = opened.attachment
        self._closing = opened.attachment.closing
        self._fresh = opened.replay is None
        """Nothing was asked of the session: it may be exchanged for one to resume."""
        self._following: Envelope | None = None
        """A frame that asks for another session, and so ends this conversation."""
        self._unheard = 0
        """Messages that came before the client can have read its welcome."""
        ping = self._ping if Feature.HEARTBEAT in opened.session.features else None
        interval = core.limits.heartbeat_seconds
        self._heartbeat = Heartbeat(transport, interval, opened.ends, ping)
        self._sender = sender

    async def run(self) -> Envelope | None:
        """Move frames until the connection ends, or a frame asks for another session: return it.

        This task is the reader.
        """
        serve_principal(self._session.principal)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._beat, name=f"heartbeat of {self._session.id}")
            try:
                await self._read(nursery)
                if self._following is None:
                    await trio.sleep_forever()  # until the connection is ended
                await self._sender.stop()
            finally:
                self._sender.let_go()
            nursery.cancel_scope.cancel(reason="the connection goes on with another session")
        return self._following

    # -- the reader

    async def _read(self, nursery: trio.Nursery) -> None:
        try:
            await self._sender.say_welcome()
            self._unheard = self._transport.unread
            self._sender.begin(nursery)
            while True:
                received = await self._reader.next(self._session.principal)
                self._heard()
                if not await self._see_to(received):
                    return
                await self._keep_pace(received)
        except TooManyMalformed:
            self._heard()
            self._core.metrics.connection_failed(Failure.MALFORMED_FRAMES)
            self._part("malformed_frames")
        except MessageTooBig:
            self._core.metrics.connection_failed(Failure.FRAME_BYTES_IN)
            error = limit_hit("frame_bytes_in", self._core.limits.frame_bytes_in)
            self._part("message too big", code=CloseCode.TOO_BIG, last=refusal(error))
        except TransportClosed:
            self._closing.now(CloseCode.NORMAL, "")

    async def _keep_pace(self, received: Received) -> None:
        """Count a frame, and wait as long as `messages_per_second` asks for after it."""
        pause = self._usage.count_message(received.size)
        if pause > 0:
            self._read_on()
            with self._heartbeat.not_listening():
                await trio.sleep(pause)

    def _heard(self) -> None:
        self._heartbeat.heard()
        if self._unheard:
            self._unheard -= 1
        else:
            self._session.heard(self._attachment)

    async def _see_to(self, received: Received) -> bool:
        """Handle a frame; return False when no more frames are to be read."""
        match received.message:
            case None | Pong():
                pass
            case Ping() as ping:
                await self._pong(ping)
            case Ack() as ack:
                if Feature.ACK in self._session.features:
                    # A number that was not sent cannot be acknowledged (§6.5).
                    seq = min(ack.last_processed_seq, self._sender.sent_seq)
                    self._session.record.ack(seq)
            case Bye():
                self._closing.now(CloseCode.NORMAL, "bye")
                return False
            case SessionResume() if self._fresh:
                self._following = received.envelope
                return False
            case message:
                self._fresh = False
                request = Request(
                    self._attachment, received.id, received.trace, message, received.size
                )
                if not self._session.inbox.has_room(request.size):
                    self._read_on()
                with self._heartbeat.not_listening():
                    await self._session.command(request)
                return not isinstance(message, Close)
        return True

    def _read_on(self) -> None:
        """Have the transport's pings answered while no frame is received."""
        if self._with_pings is not None:
            self._with_pings.read_on()

    async def _pong(self, ping: Ping) -> None:
        received_at = rfc3339(self._core.clock.now())
        answer = {"ping_nonce": ping.nonce, "received_at": received_at}
        self._sender.say(frame("session.pong", answer))
        with self._heartbeat.not_listening():
            await self._sender.room()

    # -- the heartbeat

    async def _beat(self) -> None:
        match await self._heartbeat.run():
            case Due.TOKEN_OVER as due:
                self._part("token over", last=refusal(Unauthenticated(due.value)))
            case Due.SILENT as due:
                self._core.metrics.connection_failed(Failure.HEARTBEAT_LOST)
                # Announced, though it may reach nobody (§6.4); the jobs notice nothing.
                self._sender.say(refusal(HeartbeatLost(due.value)))
                self._part("heartbeat lost")
            case Due.STUCK:
                self._core.metrics.connection_failed(Failure.HEARTBEAT_LOST)
                self._closing.now(CloseCode.POLICY, "heartbeat lost")

    def _ping(self) -> None:
        sent_at = rfc3339(self._core.clock.now())
        self._sender.say(frame("session.ping", {"nonce": new_id("p_"), "sent_at": sent_at}))

    def _part(
        self, reason: str, *, code: int = CloseCode.POLICY, last: bytes | None = None
    ) -> None:
        """End the connection after what is on its way: a write cut off would cost it its Close."""
        self._attachment.unsent.end(Farewell(code, reason, last))
        self._closing.with_farewell(code, reason)
        self._closing.within(self._core.limits.close_seconds)
