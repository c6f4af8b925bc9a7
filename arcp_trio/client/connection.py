"""A connection of a session: its reader, writer, heartbeat and acknowledgements."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from arcp_trio.client.errors import Gap, ProtocolError, Silence
from arcp_trio.client.events import Event, decode_event
from arcp_trio.client.unread import UnreadEvents
from arcp_trio.lateness import HeldTime, Patience
from arcp_trio.transport.base import Transport, TransportClosed
from arcp_trio.wire import envelope
from arcp_trio.wire.envelope import Envelope, MalformedFrame
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonObject, dumps
from arcp_trio.wire.timestamps import rfc3339

ACK_SECONDS: Final = 0.25
"""The shortest time between two acknowledgements (§6.5)."""

LAST_WORDS_SECONDS: Final = 1.0
"""How long the connection still reads after writing has failed: the runtime may say why."""

MAX_PONG_BACKLOG: Final = 64
"""With this many frames to be sent a ping is not answered: each of them is a sign of life."""

_MAX_BATCH: Final = 64


class ClientConnection:
    """Hands on what it reads, frame by frame, and sends what it is given.

    Events go to `take_event`, and all other frames to `take`, each with its text.
    """

    def __init__(
        self,
        transport: Transport,
        session_id: str,
        *,
        interval: float,
        ack: bool,
        take: Callable[[Envelope, str | bytes], None],
        take_event: Callable[[Event, str | bytes], None],
        processed: Callable[[], int],
        unread: UnreadEvents,
        now: Callable[[], float],
    ) -> None:
        self._transport = transport
        self._session_id = session_id
        self._interval = interval
        self._ack = ack
        self._take = take
        self._take_event = take_event
        self._processed = processed
        self._unread = unread
        self._now = now
        self._queue, self._queued = trio.open_memory_channel[bytes](math.inf)
        self._heard_at = self._sent_at = trio.current_time()
        self._reading = True
        self._held = HeldTime()
        self._patience = Patience(self._held, interval)
        self._scope = trio.CancelScope()
        self._why: Exception | None = None

    async def run(self) -> Exception:
        """Run until the connection ends, and return why it ended."""
        async with trio.open_nursery() as nursery:
            self._scope = nursery.cancel_scope
            nursery.start_soon(self._write, name="client writer")
            nursery.start_soon(self._beat, name="client heartbeat")
            if self._ack:
                nursery.start_soon(self._acknowledge, name="client acknowledgements")
            await self._read()
        assert self._why is not None
        return self._why

    def send(self, kind: str, payload: JsonObject, *, job_id: str | None = None) -> None:
        """Send a message of the session for which no call awaits a reply."""
        frame = envelope.encode(kind, dumps(payload), session_id=self._session_id, job_id=job_id)
        self.send_frame(frame)

    def send_frame(self, frame: bytes) -> None:
        """Queue a frame. It is dropped if the connection ends before it is sent."""
        with suppress(trio.ClosedResourceError):
            self._queue.send_nowait(frame)

    def finish(self) -> None:
        """Close the connection once every queued frame is sent."""
        self._queue.close()

    def _end(self, why: Exception) -> None:
        if self._why is None:
            self._why = why
        self._scope.cancel()

    # -- reading

    async def _read(self) -> None:
        try:
            while True:
                first = await self._transport.receive()
                self._heard_at = trio.current_time()
                # Take what came together at once: a round of the scheduler costs more than a frame.
                for text in (first, *self._transport.receive_unread()):
                    if self._unread.full:
                        await self._wait_for_room()
                    event = decode_event(text)
                    if event is not None:
                        self._take_event(event, text)
                    else:
                        self._take_frame(text)
        except MalformedFrame as error:
            self._end(ProtocolError(f"the runtime sent a frame that is not ARCP: {error}"))
        except (TransportClosed, Gap) as error:
            self._end(error)

    def _take_frame(self, text: str | bytes) -> None:
        frame = envelope.decode(text)
        if frame.type == "session.ping":
            self._pong(frame)
        elif frame.type != "session.pong":
            self._take(frame, text)

    async def _wait_for_room(self) -> None:
        self._reading = False  # meanwhile silence is not the runtime's fault
        await self._unread.make_room()
        self._reading = True
        self._heard_at = trio.current_time()

    def _pong(self, ping: Envelope) -> None:
        nonce = ping.payload.get("nonce")
        queued = self._queued.statistics().current_buffer_used
        if isinstance(nonce, str) and queued < MAX_PONG_BACKLOG:
            self.send("session.pong", {"ping_nonce": nonce, "received_at": rfc3339(self._now())})

    # -- writing

    async def _write(self) -> None:
        # A task of its own: the cancellation of a caller must not tear a frame.
        try:
            while True:
                batch = [await self._queued.receive()]
                with suppress(trio.WouldBlock, trio.EndOfChannel):
                    while len(batch) < _MAX_BATCH:
                        batch.append(self._queued.receive_nowait())
                await self._transport.send(batch)
                self._sent_at = trio.current_time()
        except trio.EndOfChannel:
            await self._transport.close()
        except TransportClosed as error:
            await trio.sleep(LAST_WORDS_SECONDS)
            self._end(error)

    async def _acknowledge(self) -> None:
        """Acknowledge what the program has processed (§6.5)."""
        acked = self._processed()
        while True:
            await trio.sleep(ACK_SECONDS)
            if (processed := self._processed()) > acked:
                acked = processed
                self.send("session.ack", {"last_processed_seq": acked})

    # -- heartbeats (§6.4)

    async def _beat(self) -> None:
        """Ping when nothing was sent for an interval; end the connection after two silent ones."""
        interval = self._interval
        while True:
            # This program may hold its own loop, and then cannot hear the runtime.
            await self._held.sleep_until(min(self._sent_at + interval, self._lost_at))
            now = trio.current_time()
            if self._lost_at <= now:
                self._end(Silence(f"nothing was heard for {2 * interval:g} seconds"))
            elif self._sent_at + interval <= now:
                self._sent_at = now
                self.send("session.ping", {"nonce": new_id("p_"), "sent_at": rfc3339(self._now())})

    @property
    def _lost_at(self) -> float:
        """The time at which the connection counts as lost, if nothing is heard until then."""
        signs = (self._heard_at if self._reading else None, self._transport.writing_since)
        return self._patience.ends(min((at for at in signs if at is not None), default=None))
