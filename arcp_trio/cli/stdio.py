"""`arcp-trio serve --stdio`: one session, with whoever has started the process (§4)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

import attrs
import trio

import arcp_trio
from arcp_trio.cli.errors import CommandError
from arcp_trio.transport.stdio import LineTransport

_INPUT: Final = 0
_OUTPUT: Final = 1
_ERRORS: Final = 2

_NAME: Final = "standard input and output"


@attrs.frozen
class StandardStreams:
    """What standard input and output were: ours alone, and inherited by no child process."""

    incoming: int
    outgoing: int
    _blocking: dict[int, bool]

    def restore(self) -> None:
        """Have them block as before: they are the same files that the other processes have."""
        for descriptor, blocking in self._blocking.items():
            with suppress(OSError):
                os.set_blocking(descriptor, blocking)

    def leave(self, exit_code: int) -> NoReturn:
        """Exit at once."""
        self.restore()
        os._exit(exit_code)


@contextmanager
def standard_streams() -> Generator[StandardStreams, None, None]:
    """Take standard input and output for the frames, so that nothing else can get in between.

    What an agent prints, or a library or a child process of its writes, goes to standard error.
    What reads standard input finds its end. That stays so, for what is still written at exit.
    """
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        raise CommandError("--stdio needs standard input, output and error; one of them is closed")
    incoming, outgoing = os.dup(_INPUT), os.dup(_OUTPUT)
    blocking = {each: os.get_blocking(each) for each in (incoming, outgoing)}
    streams = StandardStreams(incoming, outgoing, blocking)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _INPUT)
    os.close(nothing)
    os.dup2(_ERRORS, _OUTPUT)
    try:
        yield streams
    finally:
        streams.restore()
        os.close(incoming)
        os.close(outgoing)


def start_session(
    runtime: arcp_trio.Runtime, streams: StandardStreams, over: Callable[[], None]
) -> None:
    """Serve the one client there is; `over` is called once it has said all, or is gone."""
    # Copies, because a stream closes what it is given.
    transport = LineTransport(
        trio.lowlevel.FdStream(os.dup(streams.incoming)),
        trio.lowlevel.FdStream(os.dup(streams.outgoing)),
        max_bytes=runtime.limits.frame_bytes_in,
        peer=_NAME,
        on_end=over,
    )

    async def attend() -> None:
        try:
            await runtime.attend(transport, deadline=math.inf)
        finally:
            over()

    runtime.start_connection(attend, name=_NAME)
