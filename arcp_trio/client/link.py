"""One connection of a session: its reader, its writer, its heartbeat and its acknowledgements."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from arcp_trio.client.errors import ProtocolError
from arcp_trio.client.room import Room
from arcp_trio.transport.base import Transport, TransportClosed
from arcp_trio.wire import envelope
from arcp_trio.wire.envelope import Envelope, MalformedFrame
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonObject, dumps
from arcp_trio.wire.timestamps import rfc3339

ACK_SECONDS: Final = 0.25
"""How often what was processed is acknowledged, at most (§6.5)."""

LAST_WORDS_SECONDS: Final = 1.0
"""How long what the runtime still had to say is read once nothing can be sent any more."""

MOST_UNSENT: Final = 64
"""With that many frames unsent, any of them serves as a sign of life."""

_BATCH: Final = 64


class Gap(Exception):  # noqa: N818 - what there is
    """Frames are missing in the stream (§8.3)."""


class Silence(Exception):  # noqa: N818 - what there is
    """Nothing was heard, or nothing could be sent, for two heartbeat intervals (§6.4)."""


class Link:
    """Reads until it ends, for whichever reason. What it reads goes to `take`, frame by frame."""

    def __init__(
        self,
        transport: Transport,
        session_id: str,
        *,
        interval: float,
        ack: bool,
        take: Callable[[Envelope, str | bytes], None],
        processed: Callable[[], int],
        room: Room,
        now: Callable[[], float],
    ) -> None:
        self._transport = transport
        self._session_id = session_id
        self._interval = interval
        self._ack = ack
        self._take = take
        self._processed = processed
        self._room = room
        self._now = now
        self._queue, self._unsent = trio.open_memory_channel[bytes](math.inf)
        self._heard_at = self._sent_at = trio.current_time()
        self._reading = True
        self._scope = trio.CancelScope()
        self._why: Exception | None = None

    async def run(self) -> Exception:
        """Run until the connection ends, and return why it did."""
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
        """Send a message of the session that no call waits for."""
        frame = envelope.encode(kind, dumps(payload), session_id=self._session_id, job_id=job_id)
        self.send_frame(frame)

    def send_frame(self, frame: bytes) -> None:
        """Send this, unless the connection ends before."""
        with suppress(trio.ClosedResourceError):
            self._queue.send_nowait(frame)

    def finish(self) -> None:
        """Close the connection, once everything is sent."""
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
                # A round of the scheduler costs more than a frame: what came together is read so.
                for text in (first, *self._transport.receive_unread()):
                    if self._room.full:
                        await self._wait_for_room()
                    frame = envelope.decode(text)
                    if frame.type == "session.ping":
                        self._pong(frame)
                    elif frame.type != "session.pong":
                        self._take(frame, text)
        except MalformedFrame as error:
            self._end(ProtocolError(f"the runtime sent what is no ARCP frame: {error}"))
        except (TransportClosed, Gap) as why:
            self._end(why)

    async def _wait_for_room(self) -> None:
        self._reading = False  # silence does not count meanwhile
        await self._room.make()
        self._reading = True
        self._heard_at = trio.current_time()

    def _pong(self, ping: Envelope) -> None:
        nonce = ping.payload.get("nonce")
        if isinstance(nonce, str) and self._unsent.statistics().current_buffer_used < MOST_UNSENT:
            self.send("session.pong", {"ping_nonce": nonce, "received_at": rfc3339(self._now())})

    # -- writing

    async def _write(self) -> None:
        # In a task of its own: a caller's cancellation must not tear a frame.
        try:
            while True:
                batch = [await self._unsent.receive()]
                with suppress(trio.WouldBlock, trio.EndOfChannel):
                    while len(batch) < _BATCH:
                        batch.append(self._unsent.receive_nowait())
                await self._transport.send(batch)
                self._sent_at = trio.current_time()
        except trio.EndOfChannel:
            await self._transport.close()
        except TransportClosed as why:
            await trio.sleep(LAST_WORDS_SECONDS)
            self._end(why)

    async def _acknowledge(self) -> None:
        acked = self._processed()
        while True:
            await trio.sleep(ACK_SECONDS)
            if (processed := self._processed()) > acked:
                acked = processed
                self.send("session.ack", {"last_processed_seq": acked})

    # -- signs of life

    async def _beat(self) -> None:
        """Ping when nothing else was sent for an interval; end it after two without a sound."""
        interval = self._interval
        while True:
            await trio.sleep_until(min(self._sent_at + interval, self._lost_at))
            now = trio.current_time()
            if self._lost_at <= now:
                self._end(Silence(f"nothing was heard for {2 * interval:g} seconds"))
            elif self._sent_at + interval <= now:
                self._sent_at = now
                self.send("session.ping", {"nonce": new_id("p_"), "sent_at": rfc3339(self._now())})

    @property
    def _lost_at(self) -> float:
        stuck = self._transport.writing_since
        silent_since = self._heard_at if self._reading else math.inf
        return min(silent_since, math.inf if stuck is None else stuck) + 2 * self._interval
