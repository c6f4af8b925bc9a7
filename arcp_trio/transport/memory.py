"""Byte streams within the process, bounded like sockets: a writer may have to wait."""

from __future__ import annotations

from operator import index
from typing import Final

import trio

PIPE_BYTES: Final = 64 * 1024
"""How many bytes one direction holds; a write beyond that waits for the reader."""


def memory_streams() -> tuple[trio.abc.Stream, trio.abc.Stream]:
    """Return two connected streams; closing one breaks the other, as a reset does.

    They use no thread and no socket, and so work with an autojumping `trio.testing.MockClock`.
    """
    there, back = _Pipe(), _Pipe()
    return _MemoryStream(there, back), _MemoryStream(back, there)


class _Pipe:
    """One direction, from one writer to one reader, holding at most `PIPE_BYTES`."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._writer_closed = False
        self._reader_closed = False
        self._writing = False
        self._reading = False
        self._changed = trio.lowlevel.ParkingLot()

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._writing:
            raise trio.BusyResourceError("another task is writing")
        self._writing = True
        try:
            await trio.lowlevel.checkpoint()
            rest = memoryview(data)
            self._check_writable()
            while rest:
                await self._wait_for_room()
                room = PIPE_BYTES - len(self._data)
                self._data += rest[:room]
                rest = rest[room:]
                self._changed.unpark_all()
        finally:
            self._writing = False

    def write_at_once(self, data: bytes) -> int:
        """Write as much as there is room for; return how much that is, 0 if the pipe is closed."""
        if self._writing or self._writer_closed or self._reader_closed:
            return 0
        written = data[: PIPE_BYTES - len(self._data)]
        self._data += written
        self._changed.unpark_all()
        return len(written)

    async def wait_writable(self) -> None:
        if self._writing:
            raise trio.BusyResourceError("another task is writing")
        self._writing = True
        try:
            await trio.lowlevel.checkpoint()
            await self._wait_for_room()
        finally:
            self._writing = False

    async def read(self, max_bytes: int | None) -> bytes:
        if max_bytes is not None and index(max_bytes) < 1:
            raise ValueError("max_bytes must be at least 1")
        if self._reading:
            raise trio.BusyResourceError("another task is reading")
        self._reading = True
        try:
            await trio.lowlevel.checkpoint()
            while not (self._data or self._writer_closed or self._reader_closed):
                await self._changed.park()
            if self._reader_closed:
                raise trio.ClosedResourceError
            data = bytes(self._data[:max_bytes])
            del self._data[:max_bytes]
            self._changed.unpark_all()
            return data
        finally:
            self._reading = False

    def close_writer(self) -> None:
        self._writer_closed = True
        self._changed.unpark_all()

    def close_reader(self) -> None:
        self._reader_closed = True
        self._changed.unpark_all()

    async def _wait_for_room(self) -> None:
        self._check_writable()
        while len(self._data) >= PIPE_BYTES:
            await self._changed.park()
            self._check_writable()

    def _check_writable(self) -> None:
        if self._writer_closed:
            raise trio.ClosedResourceError
        if self._reader_closed:
            raise trio.BrokenResourceError("the other end is closed")


class _MemoryStream(trio.abc.Stream):
    def __init__(self, outgoing: _Pipe, incoming: _Pipe) -> None:
        self._outgoing = outgoing
        self._incoming = incoming

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._outgoing.write(data)

    def write_at_once(self, data: bytes) -> int:
        """Write as much as there is room for, without waiting; return how many bytes that is."""
        return self._outgoing.write_at_once(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._outgoing.wait_writable()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self._incoming.read(max_bytes)

    async def aclose(self) -> None:
        self._outgoing.close_writer()
        self._incoming.close_reader()
        await trio.lowlevel.checkpoint()
