"""Picks the ordinary messages out of what comes in, so that trio-websocket need not.

It takes many times as long over a small message as it takes to find where the message ends.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from arcp_trio.transport.frames import LENGTH_16, MASKED, PING, PONG, TEXT, mask

_KEY_BYTES: Final = 4


class _UnusualFrame(Exception):  # noqa: N818 - most often there is nothing wrong with it
    pass


class TextTap:
    """Takes whole text messages of less than 64 KiB, and lets everything else pass as it is.

    Messages must not overtake each other, and what is wrong with a frame is for trio-websocket to
    say. So the first frame that is neither a good text nor a ping or pong shuts the tap for good.
    """

    def __init__(self, *, masked: bool, max_bytes: int) -> None:
        self.texts: deque[str] = deque()
        """Taken, and for the owner to remove."""
        self.shut = False
        """Everything passes from now on."""
        self._mask_bit = MASKED if masked else 0
        self._key_bytes = _KEY_BYTES if masked else 0
        self._max_bytes = max_bytes
        self._rest = b""  # the beginning of a frame, or frames for the next call

    def pick(self, data: bytes) -> bytes:
        """Take the texts in `data` up to what passes, and return that.

        The texts behind it are for the next call, once it has been dealt with: a peer that pings
        and says goodbye is answered in this order.
        """
        data, self._rest = self._rest + data, b""
        passing, at, size = bytearray(), 0, len(data)
        try:
            while at + 2 <= size and not self.shut:
                start, end = self._payload(data, at)
                is_text = data[at] == TEXT
                if end > size or (is_text and passing):
                    break
                if is_text:
                    self._take(data, start, end)
                else:
                    passing += data[at:end]
                at = end
        except (_UnusualFrame, UnicodeDecodeError):
            self.shut = True
        if self.shut:
            passing += data[at:]
        else:
            self._rest = data[at:]
        return bytes(passing)

    def _payload(self, data: bytes, at: int) -> tuple[int, int]:
        """Where the payload of the frame begins and ends, if need be beyond what is there."""
        first, length, start = data[at], data[at + 1] ^ self._mask_bit, at + 2
        if length == LENGTH_16 and first == TEXT:
            start += 2
            # Cut off, it reads as less than it is.
            length = int.from_bytes(data[at + 2 : start], "big")
            unusual = length < LENGTH_16 and start <= len(data)
        else:
            unusual = length >= LENGTH_16 or first not in (TEXT, PING, PONG)
        if unusual or (first == TEXT and length > self._max_bytes):
            raise _UnusualFrame
        start += self._key_bytes
        return start, start + length

    def _take(self, data: bytes, start: int, end: int) -> None:
        payload = data[start:end]
        if self._key_bytes:
            payload = mask(payload, data[start - _KEY_BYTES : start])
        self.texts.append(payload.decode())
