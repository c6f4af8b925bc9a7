"""A child process as the peer: one frame per line on its standard input and output (§4)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from arcp_trio.transport.base import MessageTooBig, TransportClosed

#: What a child gets to end by itself once its standard input is closed; then again once told to.
LEAVE_SECONDS: Final = 2.0
#: Ending by force does no I/O, so this only guards against a process nobody can end.
KILL_SECONDS: Final = 1.0

_READ_BYTES: Final = 64 * 1024
_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)


@asynccontextmanager
async def spawn(command: Sequence[str], *, max_bytes: int) -> AsyncGenerator[LineTransport, None]:
    """Start `command`; the block talks to it. What it writes to standard error goes to ours.

    Leaving the block closes its standard input, and ends it with all of its process group if that
    does not.

    Args:
        command: a program and its arguments.
        max_bytes: what one line may have, in bytes.

    Raises:
        OSError: it cannot be started.
    """
    process = await trio.lowlevel.open_process(
        list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield LineTransport(process.stdout, process.stdin, max_bytes=max_bytes, peer=command[0])
    finally:
        with trio.CancelScope(shield=True):  # each wait in it is bounded
            await _end(process)


async def _end(process: trio.Process) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            await trio.aclose_forcefully(stream)
    for number, seconds in ((None, LEAVE_SECONDS), (signal.SIGTERM, LEAVE_SECONDS)):
        if number is not None:
            _signal_group(process, number)
        with trio.move_on_after(seconds):
            await process.wait()
            break
    _signal_group(process, signal.SIGKILL)  # what it started and left behind, too
    with trio.move_on_after(KILL_SECONDS):
        await process.wait()


def _signal_group(process: trio.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)  # it leads its group


class LineTransport:
    """Frames as lines (NDJSON), in UTF-8 whatever the locale."""

    def __init__(
        self,
        incoming: trio.abc.ReceiveStream,
        outgoing: trio.abc.SendStream,
        *,
        max_bytes: int,
        peer: str,
    ) -> None:
        self.peer: Final = peer
        self.private: Final = True
        self.writing_since: float | None = None
        self._incoming = incoming
        self._outgoing = outgoing
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._torn = False
        self._lock = trio.StrictFIFOLock()

    @property
    def unread(self) -> int:
        """How many whole lines have come and are not received yet."""
        return self._buffer.count(b"\n")

    async def receive(self) -> str | bytes:
        """Return the next line that is not blank; `bytes` if it is not UTF-8."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            line = (await self._line()).rstrip(b"\r")
            if line.strip():
                try:
                    return line.decode()
                except UnicodeDecodeError:
                    return line

    async def send(self, frames: Sequence[bytes]) -> None:
        """Write each frame as a line, all in one write."""
        async with self._lock:
            if self._torn:
                raise TransportClosed("an earlier write was cut off")
            self.writing_since = trio.current_time()
            self._torn = True
            try:
                await self._outgoing.send_all(b"".join(frame + b"\n" for frame in frames))
                self._torn = False
            except _GONE as exc:
                raise TransportClosed("the process does not read any more") from exc
            finally:
                self.writing_since = None

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the process's standard input: that is all the farewell there is.

        Its output is not read to the end: what it started may hold it open.
        """
        del code, reason
        await self._outgoing.aclose()
        await self._incoming.aclose()

    async def _line(self) -> bytes:
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                if end > self._max_bytes:
                    break
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return line
            self._searched = len(self._buffer)
            if self._searched > self._max_bytes:
                break
            try:
                data = await self._incoming.receive_some(_READ_BYTES)
            except _GONE:
                raise TransportClosed from None
            if not data:
                raise TransportClosed("the process closed its standard output")
            self._buffer += data
        raise MessageTooBig(f"a line of more than {self._max_bytes} bytes")
