"""Frames as a client is sent them: with heads, in its dialect, many in one write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.wake import Wake
from arcp_trio.store.records import NumberedTail
from arcp_trio.wire import envelope
from arcp_trio.wire.dialects import Dialect

if TYPE_CHECKING:
    from arcp_trio.transport.base import Transport

PAUSE_SECONDS: Final = 0.01
"""The pause after a frame that some clients need time for before they read the next."""

MOST_CONTROL: Final = 256
"""Control frames that may wait to be sent; past it, the reader waits, too."""


class FrameWriter:
    """Writes one session's frames to one transport; used by one sender."""

    def __init__(
        self, transport: Transport, session_id: str, arcp: str, dialect: Dialect, after_seq: int
    ) -> None:
        self.sent_seq = after_seq
        """The highest number that was handed to the transport."""
        self._transport = transport
        self._dialect = dialect
        self._numbered = envelope.numbered_head(session_id, arcp)
        self._plain = envelope.plain_head(session_id, arcp)
        self._control: list[bytes] = []
        self._control_sent = Wake()
        self._has_begun = False
        """Frames were written at once, but for a rest."""

    # -- frames of the connection itself, which go between batches and before all others

    def say(self, tail: bytes) -> None:
        """Have a ping, a pong or a welcome written before anything else."""
        self._control.append(tail)

    @property
    def has_something_to_say(self) -> bool:
        """Whether such a frame waits, or the rest of frames that were written at once."""
        return self._has_begun or bool(self._control)

    async def room(self) -> None:
        """Wait for room: a client that pings and does not read must not fill the memory."""
        while len(self._control) >= MOST_CONTROL:
            await self._control_sent.wait()

    # -- writing

    async def write(self, frames: Sequence[NumberedTail]) -> None:
        """Write frames, with a pause after each one that the client's dialect asks it for."""
        busy_after, begin = self._dialect.busy_after, 0
        if busy_after is not None:
            for end, (seq, tail) in enumerate(frames, 1):
                if not seq and tail.startswith(busy_after):
                    await self._write(frames[begin:end])
                    await trio.sleep(PAUSE_SECONDS)
                    begin = end
        if begin < len(frames) or self.has_something_to_say:
            await self._write(frames[begin:])

    async def _write(self, frames: Sequence[NumberedTail]) -> None:
        self._has_begun = False
        await self._transport.send(self._texts(frames))

    @property
    def writes_at_once(self) -> bool:
        """Whether `write_at_once` can be called: nothing is to be written before, nor a pause."""
        at_once = self._dialect.busy_after is None and self._transport.sends_at_once
        return at_once and not self.has_something_to_say

    def write_at_once(self, frames: Sequence[NumberedTail]) -> bool:
        """Begin to write frames, without waiting; return whether all of it was written."""
        self._has_begun = not self._transport.send_at_once(self._texts(frames))
        return not self._has_begun

    def _texts(self, frames: Sequence[NumberedTail]) -> Sequence[bytes]:
        numbered, plain, translate = self._numbered, self._plain, self._dialect.translate
        if translate is not None:
            translated = [(seq, translate(tail)) for seq, tail in frames]
            frames = [(seq, tail) for seq, tail in translated if tail is not None]
        texts = [plain + tail for tail in self._control]
        if texts:
            self._control.clear()
            self._control_sent.set()
        texts += [
            b"%b%d%b" % (numbered, seq, tail) if seq else plain + tail for seq, tail in frames
        ]
        # Before the write: a client may acknowledge its first frames while the rest is sent.
        self.sent_seq = next((seq for seq, _ in reversed(frames) if seq), self.sent_seq)
        return texts
