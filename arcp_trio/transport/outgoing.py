"""What one side of a WebSocket writes: whole frames, from the transport and from trio-websocket.

The two do each other no harm: writes never interleave, nothing follows a Close, and nothing is
written after a torn frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio

from arcp_trio.transport.at_once import writer_of
from arcp_trio.transport.base import close_forcefully
from arcp_trio.transport.frames import CLOSE, client_texts, close_frame, server_texts

WRITE_SLICE: Final = 64 * 1024
"""The most bytes of one write to the stream below; `writing_since` shows progress by slices."""


class Outgoing:
    """Writes to the stream that leads to the peer; the handshake first, and then frames."""

    def __init__(self, stream: trio.abc.Stream, *, client: bool) -> None:
        self.writing_since: float | None = None
        """The Trio time at which the current write last made progress."""
        self._stream = stream
        self._client = client
        self._encode: Callable[[Sequence[bytes]], bytes] = client_texts if client else server_texts
        self._write_lock = trio.StrictFIFOLock()
        self._write_at_once = writer_of(stream)
        self._unwritten = b""  # the rest of frames that were begun without waiting
        self._close_passed = False
        self._torn = False

    async def send_texts(self, texts: Sequence[bytes]) -> None:
        """Write a text frame for each of `texts`, or raise if not all could be written."""
        data = self._encode(texts)
        await self._begin_write()
        try:
            if self._close_passed:
                raise trio.ClosedResourceError("a Close has been sent")
            await self._write(data)
        finally:
            self._write_lock.release()
        await trio.lowlevel.cancel_shielded_checkpoint()

    @property
    def takes_texts_at_once(self) -> bool:
        """Whether `send_texts_at_once` can be called: nothing is before it in the stream."""
        return self._write_at_once is not None and not (
            self._unwritten or self._write_lock.locked() or self._torn or self._close_passed
        )

    def send_texts_at_once(self, texts: Sequence[bytes]) -> bool:
        """Begin to write texts, without waiting; return whether all of it was written.

        The rest precedes whatever is written next. An error is left to that write, too.
        """
        assert self._write_at_once is not None
        data = self._encode(texts)
        written = self._write_at_once(data)
        self._unwritten = data[written:]
        return written == len(data)

    async def send_close(self, code: int, reason: str) -> None:
        """Write a Close, the last frame of this side, unless one has been written."""
        await self._send(close_frame(code, reason, client=self._client))

    async def send_answer(self, answer: bytes) -> None:
        """Write a server's answer to the request for a WebSocket."""
        await self._send(answer)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write part of the handshake, or a control frame."""
        await self._send(data)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def _send(self, data: bytes | bytearray | memoryview) -> None:
        await self._begin_write()
        try:
            if self._close_passed:
                return  # no frame may follow a Close (RFC 6455 §5.5.1)
            if data[0] == CLOSE:  # which begins no part of a handshake
                self._close_passed = True
            await self._write(data)
        finally:
            self._write_lock.release()

    async def _begin_write(self) -> None:
        """Take the lock; a free one without a checkpoint."""
        await trio.lowlevel.checkpoint_if_cancelled()  # during the write it would tear a frame
        try:
            self._write_lock.acquire_nowait()
        except trio.WouldBlock:
            await self._write_lock.acquire()

    async def _write(self, data: bytes | bytearray | memoryview) -> None:
        """Write with the lock; what the stream takes at once without a checkpoint."""
        if self._torn:
            raise trio.BrokenResourceError("an earlier write was cut off")
        if self._unwritten:
            data, self._unwritten = self._unwritten + data, b""
        if self._write_at_once is not None and len(data) <= WRITE_SLICE:
            data = data[self._write_at_once(bytes(data)) :]
            if not data:
                return
        self.writing_since = trio.current_time()
        try:
            if len(data) <= WRITE_SLICE:
                await self._stream.send_all(data)
            else:
                await self._write_slices(memoryview(data))
        except BaseException:
            # How much was written is not known, so nothing can follow.
            self._torn = True
            await close_forcefully(self._stream)  # noqa: ASYNC102 - bounds itself
            raise
        finally:
            self.writing_since = None

    async def _write_slices(self, data: memoryview) -> None:
        for start in range(0, len(data), WRITE_SLICE):
            await self._stream.send_all(data[start : start + WRITE_SLICE])
            self.writing_since = trio.current_time()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until a write may make progress."""
        async with self._write_lock:
            await self._stream.wait_send_all_might_not_block()
