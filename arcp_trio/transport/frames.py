"""The bytes of WebSocket frames (RFC 6455 §5): encoding them, and measuring incoming messages."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

MAX_FRAGMENTS: Final = 16_384
"""The most fragments of a message; a bound on bytes alone lets in any number of empty ones."""
FIRST_FRAGMENTS: Final = 64
"""The same for the first message of a peer that is not authenticated yet."""

# The first bytes of frames that are whole messages: FIN and the opcode.
TEXT: Final = 0x81
CLOSE: Final = 0x88
PING: Final = 0x89
PONG: Final = 0x8A
MASKED: Final = 0x80
"""The bit of the second byte that says that a masking key follows."""
LENGTH_16: Final = 126
"""Says that the length follows in 16 bits; a length below this stands in the second byte."""
_LENGTH_64: Final = 127
"""Says that the length follows in 64 bits."""
_OPCODE: Final = 0x0F
_CONTROL: Final = 0x08
"""The first of the opcodes of control frames, which are all that follow it."""
_SHORT_HEADERS: Final = tuple(bytes((TEXT, size)) for size in range(LENGTH_16))


@lru_cache(maxsize=1_024)  # few sizes make up most frames
def frame_header(first: int, size: int, mask_bit: int = 0) -> bytes:
    """Return the header for `size` bytes of payload, up to its masking key (RFC 6455 §5.2)."""
    if size < LENGTH_16:
        return bytes((first, mask_bit | size))
    if size < 1 << 16:
        return bytes((first, mask_bit | LENGTH_16)) + size.to_bytes(2, "big")
    return bytes((first, mask_bit | _LENGTH_64)) + size.to_bytes(8, "big")


def server_texts(texts: Sequence[bytes]) -> bytes:
    """Return text frames as a server sends them: unmasked."""
    parts: list[bytes] = []
    for text in texts:
        size = len(text)
        parts.append(_SHORT_HEADERS[size] if size < LENGTH_16 else frame_header(TEXT, size))
        parts.append(text)
    return b"".join(parts)


def client_texts(texts: Sequence[bytes]) -> bytes:
    """Return text frames as a client must send them: each masked with a random key."""
    keys = os.urandom(4 * len(texts))
    return b"".join(
        _masked(TEXT, text, keys[at : at + 4])
        for text, at in zip(texts, range(0, len(keys), 4), strict=True)
    )


def close_frame(code: int, reason: str, *, client: bool) -> bytes:
    """Return a Close with its code and as much of the reason as a control frame can hold."""
    # 125 bytes minus the code (§5.5); a character that would be cut in half is left out.
    words = reason.encode()[:123].decode(errors="ignore")
    payload = code.to_bytes(2, "big") + words.encode()
    if client:
        return _masked(CLOSE, payload, os.urandom(4))
    return frame_header(CLOSE, len(payload)) + payload


def _masked(first: int, payload: bytes, key: bytes) -> bytes:
    return frame_header(first, len(payload), MASKED) + key + mask(payload, key)


def mask(payload: bytes, key: bytes) -> bytes:
    """Mask a payload; masking a masked one restores it (RFC 6455 §5.3)."""
    size = len(payload)
    pad = (key * (size // 4 + 1))[:size]
    # One XOR of two long integers is the fastest way without a C extension.
    mixed = int.from_bytes(payload, "little") ^ int.from_bytes(pad, "little")
    return mixed.to_bytes(size, "little")


class MessageGauge:
    """Bounds messages that trio-websocket reads, by the frame headers in the bytes on their way.

    trio-websocket's own limit counts characters instead of bytes, and no empty fragments.
    """

    def __init__(self, max_bytes: int, first_bytes: int | None = None) -> None:
        """Allow messages of `max_bytes`, and a first one of `first_bytes` if that is less."""
        self.most_bytes = max_bytes if first_bytes is None else min(first_bytes, max_bytes)
        self.most_fragments = MAX_FRAGMENTS if first_bytes is None else FIRST_FRAGMENTS
        self.exceeded = False
        self.saw_close = False
        self.frames = 0
        """How many have begun."""
        self.parts = 0
        """How many of them do not begin a message."""
        self.passed_bytes = 0  # of all messages except the one that began last
        self._max_bytes = max_bytes
        self._message_bytes = 0
        self._fragments = 0
        self._until_header = 0  # bytes of payload before the next header
        self._partial = b""  # the beginning of a header whose rest has not arrived

    @property
    def excess(self) -> str:
        """What is wrong with a message that exceeds the bounds, in words."""
        return f"a message of more than {self.most_bytes} bytes or {self.most_fragments} fragments"

    def admit(self, data: bytes) -> bytes:
        """Return `data` up to the frame with which a message exceeds its bounds, if one does."""
        admitted, _ = self.admit_some(data, math.inf)
        return admitted

    def admit_some(self, data: bytes, most_frames: float) -> tuple[bytes, bytes]:
        """Look at `most_frames` at most; return what is admitted of them, and the frames after."""
        seen = self._partial + data
        size = len(seen)
        at = self._until_header
        cut = size
        last = self.frames + most_frames
        while at + 2 <= size:
            if self.frames == last:
                cut, size = min(cut, at), at
                break
            first, length = seen[at], seen[at + 1]
            after = at + 6 if length & MASKED else at + 2
            length &= ~MASKED
            if length >= LENGTH_16:
                width = 2 if length == LENGTH_16 else 8
                if at + 2 + width > size:
                    break
                length = int.from_bytes(seen[at + 2 : at + 2 + width], "big")
                after += width
            self.frames += 1
            self._count(first, length)
            if self.exceeded:
                cut = min(cut, at)
            at = after + length
        before = len(self._partial)
        admitted = data if cut == len(seen) else data[: max(0, cut - before)]
        self._partial = seen[at:size]
        self._until_header = max(0, at - size)
        return admitted, data[size - before :]

    def first_is_over(self) -> None:
        """Allow `max_bytes` from now on: the first message is complete."""
        self.most_bytes = self._max_bytes
        self.most_fragments = MAX_FRAGMENTS

    def _count(self, first: int, length: int) -> None:
        opcode = first & _OPCODE
        if not 0 < opcode < _CONTROL:
            self.parts += 1
        if opcode >= _CONTROL:
            self.saw_close |= first == CLOSE
            return
        if opcode:  # not a continuation
            if self._fragments:
                self.first_is_over()
            self.passed_bytes += self._message_bytes
            self._message_bytes = self._fragments = 0
        self._message_bytes += length
        self._fragments += 1
        if self._message_bytes > self.most_bytes or self._fragments > self.most_fragments:
            self.exceeded = True
