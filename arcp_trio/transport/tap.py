"""Picks ordinary text messages out of the incoming bytes, in the place of trio-websocket.

trio-websocket takes many times longer over a small message than finding its end takes here.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from arcp_trio.transport.frames import LENGTH_16, MASKED, PING, PONG, TEXT, mask

FRAMES_A_TURN: Final = 512
"""Frames that are looked at in one go, at most, which takes about a millisecond."""

_KEY_BYTES: Final = 4
_ORDINARY: Final = (TEXT, PING, PONG)


class _UnusualFrame(Exception):  # noqa: N818 - most such frames are valid
    pass


class TextTap:
    """Takes text messages of less than 64 KiB in one frame, and lets other bytes pass unchanged.

    Messages must not overtake each other, and errors are left for trio-websocket to report. So the
    first frame that is neither such a message nor a ping or pong shuts the tap for good.
    """

    def __init__(self, *, masked: bool, max_bytes: int) -> None:
        self.texts: deque[str] = deque()
        """The messages taken, in order; the owner removes them."""
        self.shut = False
        """Whether everything passes from now on."""
        self.has_more = False
        """Whether there was more to look at than is looked at in one go: call `pick` again."""
        self._mask_bit = MASKED if masked else 0
        self._key_bytes = _KEY_BYTES if masked else 0
        self._max_bytes = max_bytes
        # Kept for the next call: a part of a frame, or the frames after those that pass.
        self._rest: bytes = b""

    def pick(self, data: bytes) -> bytes:
        """Take the texts at the beginning of `data`, and return the frames after them that pass.

        Texts after those frames are kept for the next call, when trio-websocket has handled them:
        a peer that pings and then says goodbye gets its answers in this order.
        """
        data, self._rest = self._rest + data, b""
        passing, at, size = bytearray(), 0, len(data)
        frames_left = FRAMES_A_TURN
        self.has_more = False
        try:
            while at + 2 <= size and not self.shut:
                if not frames_left:
                    self.has_more = True
                    break
                frames_left -= 1
                start, end = self._payload(data, at)
                is_text = data[at] == TEXT
                if end > size or (is_text and passing):
                    break
                if not is_text:
                    passing += data[at:end]
                elif self._key_bytes:
                    payload = mask(data[start:end], data[start - _KEY_BYTES : start])
                    self.texts.append(payload.decode())
                else:
                    self.texts.append(data[start:end].decode())
                at = end
        except (_UnusualFrame, UnicodeDecodeError):
            self.shut = True
        if self.shut:
            passing += data[at:]
        else:
            self._rest = data[at:]
        return bytes(passing)

    def _payload(self, data: bytes, at: int) -> tuple[int, int]:
        """Return where the payload of the frame at `at` begins and ends, even if beyond `data`."""
        first, length, start = data[at], data[at + 1] ^ self._mask_bit, at + 2
        if length == LENGTH_16 and first == TEXT:
            start += 2
            if start > len(data):
                return start, start  # the length is cut off
            length = data[at + 2] << 8 | data[at + 3]
            if length < LENGTH_16:
                raise _UnusualFrame
        elif length >= LENGTH_16 or first not in _ORDINARY:
            raise _UnusualFrame
        if length > self._max_bytes and first == TEXT:
            raise _UnusualFrame
        start += self._key_bytes
        return start, start + length
