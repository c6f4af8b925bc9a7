"""The byte stream under trio-websocket, to which the transport writes finished frames itself.

trio-websocket does the opening handshake, parses unusual frames, answers pings and closes. Sending
a message through it costs several rounds of the scheduler, so batches of frames go around it,
straight to the stream below (`outgoing.py`). Of what comes in, ordinary messages are taken before
trio-websocket sees them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

import trio

from arcp_trio.transport.base import GONE, close_forcefully
from arcp_trio.transport.frames import (
    MessageGauge,
)
from arcp_trio.transport.outgoing import Outgoing
from arcp_trio.transport.pace import PARTS_PER_SECOND, pace_of_parts
from arcp_trio.transport.tap import TextTap

READ_BYTES: Final = 64 * 1024
"""The most bytes of one read."""
QUEUED_MESSAGES: Final = 64
"""How many messages may wait to be received before reading stops, for pings and Closes as well."""

FRAMES_A_TURN: Final = 64
"""Frames that trio-websocket is given at once: it handles all of them before others have a turn."""

_DISCARD_BYTES: Final = 4 * 1024
"""Read at once when nothing is wanted any longer: a few hundred frames have to be looked at."""
_DISCARDED_PER_SECOND: Final = 16 * 1024 * 1024
"""The most bytes that are discarded in a second."""

_SWITCHING: Final = b"HTTP/1.1 101 "
_BLANK_LINE: Final = re.compile(rb"\n\r?\n")


class FrameStream(trio.abc.Stream):
    """The stream that trio-websocket is given, on top of the one that leads to the peer.

    The methods of `Stream` are for trio-websocket, the others for the transport.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        client: bool,
        max_bytes: int,
        first_bytes: int | None = None,
        received: bytes = b"",
    ) -> None:
        """Begin with `received`, which has been read from `stream` already.

        A server's stream begins after the client's request, which the caller has read. With
        `first_bytes`, not much more than that is read before a second message is asked for.
        """
        self.outgoing: Final = Outgoing(stream, client=client)
        self.gauge: Final = MessageGauge(max_bytes, first_bytes)
        self.pace = pace_of_parts()
        """How fast frames may come that trio-websocket is given; its owner may replace it."""
        self._stream = stream
        self._received = received
        self._switched = not client  # whether frames come, instead of the response's HTTP
        self._head = bytearray()  # of the response
        self._head_over = not client
        self._held = b""  # bytes after the head that were read with it
        self._passing = b""  # frames for trio-websocket whose turn has not come
        self._max_bytes = max_bytes
        self._received_bytes = 0  # of the messages that were received through trio-websocket
        # A peer that is not authenticated yet gets little memory: twice `first_bytes`, as frame
        # headers and control frames have to fit, too.
        self._early_bytes = math.inf if first_bytes is None else 2 * first_bytes
        self._asked = False  # whether a first message has been asked for
        self.start_reader: Callable[[], None] | None = None
        """Starts a task that gives trio-websocket its frames; None once there is one.

        Before, texts are read by the task that receives them.
        """
        self.reads_text = False
        """Whether it is reading now."""
        self.at_end = False
        """Whether nothing more will arrive."""
        self._tap = TextTap(masked=not client, max_bytes=max_bytes)
        self._texts_changed = trio.lowlevel.ParkingLot()

    # --- for trio-websocket ---

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write part of the handshake, or a control frame."""
        await self.outgoing.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until a write may make progress."""
        await self.outgoing.wait_send_all_might_not_block()

    # --- reading ---

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Read bytes without the taken texts; none at the end, or after an oversized message."""
        if self.gauge.exceeded:
            return b""
        if not self._head_over:
            return self._split_head(await self._read(max_bytes))
        held, self._held = self._held, b""
        if not self._switched:
            return held or await self._read(max_bytes)  # the body of a refusal
        if not self._passing:
            self._passing = self._pick(held)
        while not self._passing:
            if not await self._read_and_pick(max_bytes):
                return b""
        return await self._turn()

    async def _read_and_pick(self, max_bytes: int | None) -> bool:
        """Take texts from what arrives, and let frames pass; return False at the end."""
        await self._room()
        if self._tap.has_more:
            await trio.lowlevel.checkpoint()
            data = b""
        else:
            data = await self._read(max_bytes)
            if not data:
                self.at_end = True
                return False
            self._early_bytes -= len(data)
        self._passing = self._pick(data)
        return True

    async def _turn(self) -> bytes:
        """Return as many of the passing frames as trio-websocket handles in a short time."""
        pace = self.pace
        await pace.wait_for(FRAMES_A_TURN)
        gauge = self.gauge
        before = gauge.parts
        admitted, self._passing = gauge.admit_some(self._passing, FRAMES_A_TURN)
        if gauge.exceeded:  # nothing passes any longer
            gauge.admit(self._passing)
            self._passing = b""
        pace.give_back(FRAMES_A_TURN - min(FRAMES_A_TURN, gauge.parts - before))
        return admitted

    async def _room(self) -> None:
        """Wait until the messages that were read and not received are within their bounds."""
        while (
            (len(self._tap.texts) >= QUEUED_MESSAGES and not self._tap.shut)
            or self.gauge.passed_bytes - self._received_bytes >= self._max_bytes
            or self._early_bytes <= 0
        ):
            await self._texts_changed.park()

    def received(self, message: str | bytes) -> None:
        """Record that a message was received from trio-websocket, which makes room for others."""
        self._received_bytes += len(message.encode() if isinstance(message, str) else message)
        self._texts_changed.unpark_all()

    def _pick(self, data: bytes) -> bytes:
        passing = self._tap.pick(data)
        if self._tap.texts:
            self.gauge.first_is_over()
        self._texts_changed.unpark_all()
        return passing

    @property
    def unread_texts(self) -> int:
        """How many texts can be received without waiting."""
        return len(self._tap.texts)

    async def receive_text(self) -> str | None:
        """Return the next text; None if the next message comes from trio-websocket."""
        if self._asked and self._early_bytes < math.inf:
            self._read_on()
        self._asked = True
        if self._tap.texts:
            await trio.lowlevel.checkpoint()
        while not self._tap.texts:
            if self._tap.shut or self.at_end:
                return None
            if self.start_reader is not None:
                await self._read_text(self.start_reader)
            else:
                await self._texts_changed.park()
        if len(self._tap.texts) == QUEUED_MESSAGES:
            self._texts_changed.unpark_all()
        return self._tap.texts.popleft()

    async def _read_text(self, start_reader: Callable[[], None]) -> None:
        """Read, in the task that receives; for anything but texts, start the reader's."""
        self.reads_text = True
        try:
            if not self._passing:
                await self._read_and_pick(READ_BYTES)
        except GONE:
            self.at_end = True
        finally:
            self.reads_text = False
        if self._passing:
            start_reader()

    def take_texts(self) -> list[str]:
        """Return all texts that can be received without waiting."""
        texts = list(self._tap.texts)
        self._tap.texts.clear()
        self._texts_changed.unpark_all()
        return texts

    def shut_tap(self) -> None:
        """Leave everything that arrives from now on to trio-websocket."""
        self._tap.shut = True
        self._read_on()

    def _read_on(self) -> None:
        self._early_bytes = math.inf
        self._texts_changed.unpark_all()

    def _split_head(self, data: bytes) -> bytes:
        before = len(self._head)
        self._head += data
        blank = _BLANK_LINE.search(self._head, max(0, before - 2))
        if blank is None:
            return data
        self._head_over = True
        self._switched = self._head.startswith(_SWITCHING)
        cut = blank.end() - before
        self._head.clear()
        self._held = data[cut:]
        return data[:cut]

    @property
    def answered(self) -> bool:
        """Whether the server has sent anything."""
        return self._head_over or bool(self._head)

    async def _read(self, max_bytes: int | None) -> bytes:
        if self._received:
            await trio.lowlevel.checkpoint()
            received, self._received = self._received, b""
            return received
        return bytes(await self._stream.receive_some(max_bytes))

    async def discard(self) -> None:
        """Read and discard, up to the peer's Close or the end of the stream.

        Closing a socket with unread data resets it, and a reset can overtake this side's Close.
        """
        gauge = self.gauge
        data, self._passing = self._passing + self._pick(b""), b""
        while not (gauge.saw_close or self.at_end) and (
            data := data or await self._read(_DISCARD_BYTES)
        ):
            before = gauge.frames
            gauge.admit(data[:_DISCARD_BYTES])
            data = data[_DISCARD_BYTES:]
            frames = gauge.frames - before
            if not gauge.saw_close:
                seconds = _DISCARD_BYTES / _DISCARDED_PER_SECOND
                await self.pace.wait_for(max(frames, seconds * PARTS_PER_SECOND))

    # --- ending ---

    async def aclose(self) -> None:
        """Leave the stream open: trio-websocket is done with it, but a Close may still be due."""
        await trio.lowlevel.checkpoint()

    async def abort(self) -> None:
        """Close the stream below, at once."""
        await close_forcefully(self._stream)
