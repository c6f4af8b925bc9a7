"""Frames as lines (NDJSON, §4): to a child process, or to the parent of this process."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from arcp_trio.transport.base import GONE, MessageTooBig, TransportClosed
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.transport.starting import Start, StartedProcess, start
from arcp_trio.wire.errors import clip

LEAVE_SECONDS: Final = 2.0
"""How long a child may take to exit after its standard input is closed, and again after SIGTERM."""

MOST_ERROR_LINE: Final = 8 * 1024
"""The longest line of standard error that is passed on whole; the rest comes in pieces, or is cut.
"""

_READ_BYTES: Final = 64 * 1024


@asynccontextmanager
async def spawn(
    command: Sequence[str],
    *,
    max_bytes: int,
    first_bytes: int | None = None,
    cwd: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    keep_stderr: bool = False,
    leave_seconds: float = LEAVE_SECONDS,
    terminate_seconds: float = LEAVE_SECONDS,
    start: Start = start,
) -> AsyncGenerator[ChildProcess, None]:
    """Start `command` as a child process for the length of the block.

    Leaving the block ends the process and all of its process group: see `ChildProcess.end`.

    Args:
        command: a program and its arguments.
        max_bytes: the largest line that is received, in bytes.
        first_bytes: the same for the first line, if that is less.
        cwd: the folder that the child starts in, by default that of this process.
        environment: the child's variables, by default those of this process.
        keep_stderr: give the block the child's standard error, which otherwise goes to this
            process's.
        leave_seconds: how long the child may take to exit after its standard input is closed.
        terminate_seconds: how long it may take after SIGTERM.
        start: starts the process, by default as any child of this one.

    Raises:
        OSError: the program cannot be started.
    """
    stderr = subprocess.PIPE if keep_stderr else None
    process = await start(command, cwd=cwd, environment=environment, stderr=stderr)
    child = ChildProcess(
        process,
        max_bytes=max_bytes,
        first_bytes=first_bytes,
        name=command[0],
        patience=(leave_seconds, terminate_seconds),
    )
    try:
        yield child
    finally:
        await child.end()  # noqa: ASYNC102 - bounds and shields itself
        await process.close()  # noqa: ASYNC102 - does not wait


class ChildProcess:
    """A child process that leads a group, with a transport over its standard streams."""

    def __init__(
        self,
        process: StartedProcess,
        *,
        max_bytes: int,
        first_bytes: int | None,
        name: str,
        patience: tuple[float, float],
    ) -> None:
        assert process.stdin is not None
        self.transport: Final = LineTransport(
            process.stdout,
            process.stdin,
            max_bytes=max_bytes,
            first_bytes=first_bytes,
            peer=name,
        )
        self._process = process
        self._patience = patience

    @property
    def sandbox(self) -> int | None:
        """The pidfd of the first process of the child's sandbox; None without one."""
        return self._process.sandbox

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the number of the signal that ended the process."""
        return self._process.returncode

    async def wait(self) -> None:
        """Wait until the process has exited; others of its group may go on."""
        await self._process.wait()

    async def read_errors(self, take: Callable[[str], None]) -> None:
        """Read standard error to its end, and call `take` with each line that is not blank."""
        assert self._process.stderr is not None
        rest = b""
        with suppress(*GONE):  # closed at the end of the block
            async for data in self._process.stderr:
                *lines, rest = (rest + data).split(b"\n")
                if len(rest) > MOST_ERROR_LINE:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    _pass_on(line, take)
        _pass_on(rest, take)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group: the child and all it started that is still in it."""
        self._process.signal(number)

    async def end(self) -> None:
        """Close the child's standard input, then send SIGTERM, then SIGKILL, until it exits.

        Cancellation: has no effect; each wait is bounded.
        """
        with trio.CancelScope(shield=True):
            await self.transport.close()
            for number, seconds in zip((None, signal.SIGTERM), self._patience, strict=True):
                if number is not None:
                    self.signal(number)
                with trio.move_on_after(seconds):
                    await self._process.wait()
                    break
            await self._process.kill()  # also what it has started and left behind


def _pass_on(line: bytes, take: Callable[[str], None]) -> None:
    text = clip(line.decode(errors="replace").rstrip(), MOST_ERROR_LINE)
    if text:
        take(text)


class LineTransport:
    """A transport whose frames are lines, in UTF-8 whatever the locale.

    It cannot send at once: a pipe may belong to another program, which must not find it
    non-blocking.
    """

    def __init__(
        self,
        incoming: trio.abc.ReceiveStream,
        outgoing: trio.abc.SendStream,
        *,
        max_bytes: int,
        first_bytes: int | None = None,
        peer: str,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Take both streams over.

        Args:
            incoming: brings the peer's lines.
            outgoing: takes this side's lines.
            max_bytes: the largest line that is received, in bytes.
            first_bytes: the same for the first line, if that is less.
            peer: the peer's name, for logs.
            on_end: called at the end of `incoming`, where the transport then stays open, as the
                peer may still be reading. Without it, the transport is closed by that end.
        """
        self.peer: Final = peer
        self.private: Final = True
        self.writing_since: float | None = None
        self.arrivals = 0
        """How many reads have brought something."""
        self._incoming = incoming
        self._outgoing = outgoing
        self._max_bytes = max_bytes
        self._most_bytes = max_bytes if first_bytes is None else min(first_bytes, max_bytes)
        """The bound of the next line."""
        self._on_end = on_end
        self._buffer = bytearray()
        self._searched = 0
        self._torn = False
        self._lock = trio.StrictFIFOLock()

    @property
    def unread(self) -> int:
        """How many whole lines have arrived and are not received yet."""
        return self._buffer.count(b"\n")

    async def receive(self) -> str | bytes:
        """Return the next line that is not blank, as `bytes` if it is not UTF-8."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            line = (await self._line()).rstrip(b"\r")
            if line.strip():
                try:
                    return line.decode()
                except UnicodeDecodeError:
                    return line

    def receive_unread(self) -> Sequence[str | bytes]:
        """Return nothing: lines are not split before they are received."""
        return ()

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
            except GONE as error:
                raise TransportClosed("the peer no longer reads") from error
            finally:
                self.writing_since = None

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        """Close both streams; lines have no Close, so `code` and `reason` are not sent.

        Nothing more is read: a process that the peer started may hold its standard output open.
        """
        del code, reason
        with trio.CancelScope(shield=True):  # closing by force does not wait
            await trio.aclose_forcefully(self._outgoing)
            await trio.aclose_forcefully(self._incoming)

    async def _line(self) -> bytes:
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                if end > self._most_bytes:
                    break
                self._most_bytes = self._max_bytes
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return line
            self._searched = len(self._buffer)
            if self._searched > self._most_bytes:
                break
            await self._read()
        raise MessageTooBig(f"a line of more than {self._most_bytes} bytes")

    async def _read(self) -> None:
        try:
            data = await self._incoming.receive_some(_READ_BYTES)
        except GONE:
            raise TransportClosed from None
        if not data:
            if self._on_end is not None:
                self._on_end()
                await trio.sleep_forever()
            raise TransportClosed("the process closed its standard output")
        self.arrivals += 1
        self._buffer += data
