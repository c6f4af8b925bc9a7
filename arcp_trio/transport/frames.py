"""The byte stream under trio-websocket, shared with a sender that writes finished frames itself.

trio-websocket does the opening handshake, parses what comes in, answers pings and closes. One call
of it per message costs several scheduler rounds, so whole batches of frames go around it and
straight to the stream below. This module keeps the two from harming each other: writes never
interleave, nothing follows a Close, and nothing is ever written behind a torn frame.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Final

import trio

#: A write goes out in slices of at most this many bytes, each of which is progress one can see.
WRITE_SLICE: Final = 64 * 1024
#: A message may come in at most this many fragments: empty ones would otherwise be free for a peer.
MAX_FRAGMENTS: Final = 16_384
#: Closing by force does no network I/O, so this only guards against a stream that misbehaves.
ABORT_SECONDS: Final = 1.0

_TEXT: Final = 0x81  # FIN and opcode 1
_CLOSE: Final = 0x88  # FIN and opcode 8
_MASKED: Final = 0x80
_OPCODE: Final = 0x0F
_CONTROL: Final = 0x08  # this opcode and those above
#: Lengths below this stand in the second byte; the two from here say how long the length field is.
_LENGTH_16: Final = 126
_LENGTH_64: Final = 127
_SHORT_HEADERS: Final = tuple(bytes((_TEXT, size)) for size in range(_LENGTH_16))

_SWITCHING: Final = b"HTTP/1.1 101 "
_BLANK_LINE: Final = re.compile(rb"\n\r?\n")


def frame_header(first: int, size: int, mask_bit: int = 0) -> bytes:
    """Return the header for `size` bytes of payload, up to its masking key (RFC 6455 §5.2)."""
    if size < _LENGTH_16:
        return bytes((first, mask_bit | size))
    if size < 1 << 16:
        return bytes((first, mask_bit | _LENGTH_16)) + size.to_bytes(2, "big")
    return bytes((first, mask_bit | _LENGTH_64)) + size.to_bytes(8, "big")


def server_texts(texts: Sequence[bytes]) -> bytes:
    """Return text frames as servers send them: unmasked."""
    parts: list[bytes] = []
    for text in texts:
        size = len(text)
        parts.append(_SHORT_HEADERS[size] if size < _LENGTH_16 else frame_header(_TEXT, size))
        parts.append(text)
    return b"".join(parts)


def client_texts(texts: Sequence[bytes]) -> bytes:
    """Return text frames as clients have to send them: each masked with a key of its own."""
    keys = os.urandom(4 * len(texts))
    return b"".join(
        _masked(_TEXT, text, keys[at : at + 4])
        for text, at in zip(texts, range(0, len(keys), 4), strict=True)
    )


def close_frame(code: int, reason: str, *, client: bool) -> bytes:
    """Return a Close with its code and as much of the reason as a control frame holds."""
    # 125 bytes less the code; a character cut in half is left out.
    words = reason.encode()[:123].decode(errors="ignore")
    payload = code.to_bytes(2, "big") + words.encode()
    if client:
        return _masked(_CLOSE, payload, os.urandom(4))
    return frame_header(_CLOSE, len(payload)) + payload


def _masked(first: int, payload: bytes, key: bytes) -> bytes:
    size = len(payload)
    pad = (key * (size // 4 + 1))[:size]
    # One XOR of two long integers is the fastest there is without a C extension.
    mixed = int.from_bytes(payload, "little") ^ int.from_bytes(pad, "little")
    return frame_header(first, size, _MASKED) + key + mixed.to_bytes(size, "little")


class MessageGauge:
    """Reads the frame headers of the bytes passing by, to bound the message they add up to.

    trio-websocket counts characters where the limit means bytes, and an empty fragment not at all.
    """

    def __init__(self, max_bytes: int) -> None:
        self.exceeded = False
        self.saw_close = False
        self._max_bytes = max_bytes
        self._message_bytes = 0
        self._fragments = 0
        self._until_header = 0  # bytes of payload that are still to come
        self._partial = b""  # the beginning of a header that the last bytes ended in

    def admit(self, data: bytes) -> bytes:
        """Return `data`, up to the frame with which a message first passes its bounds."""
        seen = self._partial + data
        size = len(seen)
        at = self._until_header
        cut = size
        while at + 2 <= size:
            first, length = seen[at], seen[at + 1]
            after = at + 6 if length & _MASKED else at + 2
            length &= ~_MASKED
            if length >= _LENGTH_16:
                width = 2 if length == _LENGTH_16 else 8
                if at + 2 + width > size:
                    break
                length = int.from_bytes(seen[at + 2 : at + 2 + width], "big")
                after += width
            self._count(first, length)
            if self.exceeded:
                cut = min(cut, at)
            at = after + length
        admitted = data if cut == size else data[: max(0, cut - len(self._partial))]
        self._partial = seen[at:]
        self._until_header = max(0, at - size)
        return admitted

    def _count(self, first: int, length: int) -> None:
        opcode = first & _OPCODE
        if opcode >= _CONTROL:
            self.saw_close |= first == _CLOSE
            return
        if opcode:  # not a continuation
            self._message_bytes = self._fragments = 0
        self._message_bytes += length
        self._fragments += 1
        if self._message_bytes > self._max_bytes or self._fragments > MAX_FRAGMENTS:
            self.exceeded = True


class FrameStream(trio.abc.Stream):
    """The stream trio-websocket is given, on top of the one that leads to the peer.

    Its `Stream` methods are for trio-websocket, the others for the transport.
    """

    def __init__(self, stream: trio.abc.Stream, *, client: bool, max_bytes: int) -> None:
        self.gauge: Final = MessageGauge(max_bytes)
        self.writing_since: float | None = None
        self._stream = stream
        self._client = client
        self._encode: Callable[[Sequence[bytes]], bytes] = client_texts if client else server_texts
        self._write_lock = trio.StrictFIFOLock()
        self._close_passed = False
        self._torn = False
        self._switched = trio.Event()  # HTTP is over, what follows are frames
        self._head = bytearray()  # of the request or response that comes in
        self._head_over = False
        self._held = b""  # read together with the end of the head

    # --- writing ---

    async def send_texts(self, texts: Sequence[bytes]) -> None:
        """Write text frames, one for each of `texts`, all or (raising) not."""
        data = self._encode(texts)
        async with self._write_lock:
            if self._close_passed:
                raise trio.ClosedResourceError("a Close has been sent")
            await self._write(data)

    async def send_close(self, code: int, reason: str) -> None:
        """Write a Close, the last frame of this side, unless there has been one."""
        await self.send_all(close_frame(code, reason, client=self._client))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write the handshake or one control frame of trio-websocket's."""
        async with self._write_lock:
            if self._close_passed:
                return  # nothing may follow a Close, and nobody waits for a pong or a second one
            opening = not self._switched.is_set()
            if not opening and data[0] == _CLOSE:
                self._close_passed = True
            await self._write(data)
        if opening and not self._client and bytes(data[: len(_SWITCHING)]) == _SWITCHING:
            self._switched.set()

    async def _write(self, data: bytes | bytearray | memoryview) -> None:
        if self._torn:
            raise trio.BrokenResourceError("an earlier write was cut off")
        self.writing_since = trio.current_time()
        try:
            if len(data) <= WRITE_SLICE:
                await self._stream.send_all(data)
            else:
                await self._write_slices(memoryview(data))
        except BaseException:
            # Nobody knows how much of it went out, so nothing can follow.
            self._torn = True
            with trio.move_on_after(ABORT_SECONDS, shield=True):
                await self.abort()
            raise
        finally:
            self.writing_since = None

    async def _write_slices(self, data: memoryview) -> None:
        for start in range(0, len(data), WRITE_SLICE):
            await self._stream.send_all(data[start : start + WRITE_SLICE])
            self.writing_since = trio.current_time()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until a write may get on."""
        async with self._write_lock:
            await self._stream.wait_send_all_might_not_block()

    # --- reading ---

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Read what came; empty at the end, and from the frame that is too much."""
        if self.gauge.exceeded:
            return b""
        if not self._head_over:
            return self._split_head(await self._read(max_bytes))
        if not self._client:
            # A client may be so eager as to send frames with its request. trio-websocket would lose
            # them, so they are kept until the request is answered.
            await self._switched.wait()
        data, self._held = self._held or await self._read(max_bytes), b""
        return self.gauge.admit(data) if self._switched.is_set() else data

    def _split_head(self, data: bytes) -> bytes:
        before = len(self._head)
        self._head += data
        blank = _BLANK_LINE.search(self._head, max(0, before - 2))
        if blank is None:
            return data
        self._head_over = True
        if self._client and self._head.startswith(_SWITCHING):
            self._switched.set()
        cut = blank.end() - before
        self._head.clear()
        self._held = data[cut:]
        return data[:cut]

    async def _read(self, max_bytes: int | None) -> bytes:
        return bytes(await self._stream.receive_some(max_bytes))

    async def discard(self) -> None:
        """Read and forget, up to the peer's Close or the end.

        Closing a socket with unread data resets it, and a reset can overtake our Close.
        """
        while not self.gauge.saw_close and (data := await self._read(None)):
            self.gauge.admit(data)

    # --- ending ---

    async def aclose(self) -> None:
        """Leave the stream open: trio-websocket is done with it, but a Close may be due yet."""
        await trio.lowlevel.checkpoint()

    async def abort(self) -> None:
        """Close the stream below, at once."""
        await trio.aclose_forcefully(self._stream)
