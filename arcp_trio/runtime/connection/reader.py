"""Frames as they come in on a connection: their size and their shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import trio

from arcp_trio.wire import envelope
from arcp_trio.wire.envelope import Envelope, MalformedFrame
from arcp_trio.wire.errors import ArcpError, InvalidRequest
from arcp_trio.wire.messages import Ack, Message, parse

if TYPE_CHECKING:
    from arcp_trio.rounds import Rounds
    from arcp_trio.runtime.limits import Limits
    from arcp_trio.transport.base import Transport


LARGE_FRAME: Final = 64 * 1024
"""Characters; a larger frame waits for its turn to be decoded, which may take milliseconds."""
MALFORMED_SECONDS: Final = 10.0
"""The span in which `malformed_frames` are counted."""


class FirstFrameTooBig(Exception):  # noqa: N818 - a fact about the client
    """The frame that asks for a session is over `first_frame_bytes`; it was not decoded."""


class TooManyMalformed(Exception):  # noqa: N818 - the same
    """The client has sent more malformed frames than `malformed_frames`."""


class Received(msgspec.Struct, frozen=True):
    """A frame that came, or why it is malformed."""

    envelope: Envelope | None
    """None if the text is not an envelope."""
    message: Message | ArcpError | None
    """None for a frame of a type that the runtime ignores."""
    size: int
    """In bytes."""

    @property
    def id(self) -> str | None:
        """The frame's id, also of a malformed frame if it could be read."""
        return frame_id(self.message) if self.envelope is None else self.envelope.id

    @property
    def trace(self) -> str | None:
        """What the client said of its trace: a trace id, or a whole `traceparent` (§11)."""
        return (
            None if self.envelope is None else self.envelope.traceparent or self.envelope.trace_id
        )


class Reader:
    """Reads a connection's frames, one after the other."""

    def __init__(self, transport: Transport, limits: Limits, long_steps: Rounds) -> None:
        self._transport = transport
        self._limits = limits
        self._long_steps = long_steps
        self._malformed_at: list[float] = []

    async def first(self) -> Envelope:
        """Return the frame that asks for a session.

        Raises:
            FirstFrameTooBig: it is too large to look at.
            InvalidRequest: it is malformed.
            TransportClosed: there will be no frame.
        """
        text = await self._transport.receive()
        if _size(text) > self._limits.first_frame_bytes:
            raise FirstFrameTooBig
        return self._decode(text)

    async def next(self, principal: str) -> Received:
        """Return the next frame of an open session; a large one is decoded in its principal's turn.

        Raises:
            TooManyMalformed: it is malformed, and so were too many before.
            TransportClosed: there will be no frame.
        """
        text = await self._transport.receive()
        if len(text) <= LARGE_FRAME:
            return self._read(text)
        async with self._long_steps.turn(principal):
            return self._read(text)

    def _read(self, text: str | bytes) -> Received:
        received: Envelope | None = None
        try:
            received = self._decode(text)
            message = _checked(parse(received))
        except InvalidRequest as error:
            if self.too_many_malformed():
                raise TooManyMalformed from error
            return Received(received, error, _size(text))
        return Received(received, message, _size(text))

    def too_many_malformed(self) -> bool:
        """Count a malformed frame; return whether there are now more than `malformed_frames`."""
        now = trio.current_time()
        self._malformed_at = [at for at in self._malformed_at if at >= now - MALFORMED_SECONDS]
        self._malformed_at.append(now)
        return len(self._malformed_at) > self._limits.malformed_frames

    def _decode(self, text: str | bytes) -> Envelope:
        if isinstance(text, bytes):
            raise InvalidRequest("a binary frame: ARCP frames are text")
        limits = self._limits
        return envelope.decode(
            text,
            max_depth=limits.json_depth,
            max_values=limits.json_values,
            large=LARGE_FRAME,
        )


def frame_id(error: Message | ArcpError | None) -> str | None:
    """Return the id of a malformed frame, if it could be read."""
    return error.request_id if isinstance(error, MalformedFrame) else None


def _checked(message: Message | None) -> Message | None:
    if isinstance(message, Ack) and message.last_processed_seq < 0:
        raise InvalidRequest("expected a number from 0 @ $.payload.last_processed_seq")
    return message


def _size(text: str | bytes) -> int:
    """Return the size in bytes; text that is all ASCII knows it without being encoded."""
    return len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode())
