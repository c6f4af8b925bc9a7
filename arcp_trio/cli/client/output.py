"""Standard output and standard error, as the client commands write to them.

Each piece of output is written at once and whole, so that who reads it along a pipe reads it as it
happens. A reader that is slow is waited for without holding up the connection to the runtime; one
that has gone is `BrokenPipeError`.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Mapping
from typing import Final

import trio

from arcp_trio.cli.text import safe_json
from arcp_trio.wire.json import Json, dumps

STDOUT: Final = 1
_STDERR: Final = 2
_PIECE: Final = 4096
"""What a pipe that is ready at all takes without blocking: POSIX's PIPE_BUF is at most this."""
_NARROWEST: Final = 20
_USUAL_COLUMNS: Final = 80


class Output:
    """One of the two."""

    def __init__(self, fd: int, environment: Mapping[str, str]) -> None:
        self.fd = fd
        self.is_terminal = os.isatty(fd)
        self.obeys = self.is_terminal and environment.get("TERM") != "dumb"
        """Whether it can move its cursor."""
        self.colours = _wants_colours(environment, obeys=self.obeys)
        self._ready = select.poll()
        self._ready.register(fd, select.POLLOUT)

    @property
    def columns(self) -> int:
        """How wide it is just now."""
        try:
            columns = os.get_terminal_size(self.fd).columns
        except OSError:
            return _USUAL_COLUMNS
        # A terminal that nobody has told its size says 0.
        return max(columns, _NARROWEST) if columns else _USUAL_COLUMNS

    async def write(self, text: str | bytes) -> None:
        """Write it all.

        Cancellation: part of it may have been written.

        Raises:
            BrokenPipeError: nobody reads any more.
            OSError: it cannot be written, to a disk that is full for example.
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
            if error.errno != errno.EPERM:  # a file, which never blocks for long
                raise


def _wants_colours(environment: Mapping[str, str], *, obeys: bool) -> bool:
    """Decide as is usual: NO_COLOR, then FORCE_COLOR, then what it is written to."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") not in ("", "0", "false"):
        return True
    return obeys


def stdout() -> Output:
    """Make the one for results."""
    return Output(STDOUT, os.environ)


def stderr() -> Output:
    """Make the one for everything else."""
    return Output(_STDERR, os.environ)


def json_line(value: Json) -> str:
    """Write one JSON object as a line that a terminal takes for text, whatever is in it."""
    return safe_json(dumps(value).decode()) + "\n"
