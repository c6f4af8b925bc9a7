"""Standard output and standard error, as the commands that talk to a runtime write to them.

Each piece is written at once, so that a reader at the end of a pipe reads it as it happens. While
the reader is slow, the connection to the runtime goes on. When the reader closes the pipe, a write
raises `BrokenPipeError`.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Mapping
from typing import Final

import trio

from arcp_trio.cli.text import safe_json
from arcp_trio.wire.json import JsonLike, dumps

STDOUT: Final = 1
_STDERR: Final = 2
_PIECE: Final = 4096
"""The bytes that a pipe takes without blocking if it is writable; PIPE_BUF is at most this."""
_NARROWEST: Final = 20
_USUAL_COLUMNS: Final = 80


class Output:
    """One of the two streams."""

    def __init__(self, fd: int, environment: Mapping[str, str]) -> None:
        self.fd = fd
        self.is_terminal = os.isatty(fd)
        self.obeys = self.is_terminal and environment.get("TERM") != "dumb"
        """Whether the stream is a terminal that can move its cursor."""
        self.colours = _wants_colours(environment, obeys=self.obeys)
        """Whether text may be coloured."""
        self._ready = select.poll()
        self._ready.register(fd, select.POLLOUT)

    @property
    def columns(self) -> int:
        """The width just now."""
        try:
            columns = os.get_terminal_size(self.fd).columns
        except OSError:
            return _USUAL_COLUMNS
        # A terminal whose size was never set says 0.
        return max(columns, _NARROWEST) if columns else _USUAL_COLUMNS

    async def write(self, text: str | bytes) -> None:
        """Write the whole text.

        Cancellation: a part of it may have been written.

        Raises:
            BrokenPipeError: the reader has closed the pipe.
            OSError: the text cannot be written, for example because the disk is full.
        """
        data = memoryview(text.encode(errors="replace") if isinstance(text, str) else text)
        while data:
            await self._until_ready()
            data = data[os.write(self.fd, data[:_PIECE]) :]

    async def _until_ready(self) -> None:
        if self._ready.poll(0):
            return
        try:
            await trio.lowlevel.wait_writable(self.fd)
        except OSError as error:
            if error.errno != errno.EPERM:  # a file cannot be waited for, and does not block
                raise


def _wants_colours(environment: Mapping[str, str], *, obeys: bool) -> bool:
    """Decide in the usual order: NO_COLOR, FORCE_COLOR, the kind of stream."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") not in ("", "0", "false"):
        return True
    return obeys


def stdout() -> Output:
    """Return standard output, which is for results."""
    return Output(STDOUT, os.environ)


def stderr() -> Output:
    """Return standard error, which is for everything else."""
    return Output(_STDERR, os.environ)


def json_line(value: JsonLike) -> str:
    """Return a JSON object as one line without control sequences that a terminal would obey."""
    return safe_json(dumps(value).decode()) + "\n"
