"""`serve --stdio`: one session, with the process that has started this one (§4)."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NoReturn

import attrs
import trio

from arcp_trio.cli.errors import CommandError
from arcp_trio.runtime.runtime import Runtime
from arcp_trio.transport.base import Transport
from arcp_trio.transport.stdio import LineTransport

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_NAME: Final = "standard input and output"


@attrs.frozen
class StandardStreams:
    """Copies of standard input and output for the frames; no child process inherits them."""

    incoming: int
    outgoing: int
    _blocking: Mapping[int, bool]
    """Whether each of the two was blocking when it was found."""

    @classmethod
    def take(cls) -> StandardStreams:
        """Take the standard streams for the frames, so that nothing else is written or read there.

        From then on standard output is standard error, even for libraries and child processes, and
        standard input is empty. Both stay so until the process ends.

        Raises:
            CommandError: a standard stream is closed.
        """
        if None in (sys.__stdin__, sys.__stdout__, sys.__stderr__):  # closed at the start
            raise CommandError("--stdio needs standard input, output and error")
        incoming, outgoing = os.dup(_STDIN), os.dup(_STDOUT)
        os.dup2(_STDERR, _STDOUT)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, _STDIN)
        os.close(nothing)
        return cls(
            incoming, outgoing, {each: os.get_blocking(each) for each in (incoming, outgoing)}
        )

    def restore(self) -> None:
        """Make both streams blocking or not, as they were: other processes share them."""
        for descriptor, blocking in self._blocking.items():
            with suppress(OSError):
                os.set_blocking(descriptor, blocking)

    def leave(self, exit_code: int) -> NoReturn:
        """Restore both streams and end the process at once."""
        self.restore()
        os._exit(exit_code)


@attrs.frozen
class StandardDoor:
    """The way in for one client, the process that has started this one; used like `Doors`."""

    _streams: StandardStreams
    _over: Callable[[], None]
    """Called when the client has closed its side, or its session is over."""

    @property
    def url(self) -> None:
        """None: no other client can connect."""

    local_url = url
    for_this_machine = False

    @property
    def reloads(self) -> dict[str, Callable[[], None]]:
        """Nothing that could be read again."""
        return {}

    async def serve(
        self,
        runtime: Runtime,
        *,
        task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Start a task of `runtime` that attends to the client."""
        # A stream closes its descriptor, so each stream gets a copy.
        transport = LineTransport(
            trio.lowlevel.FdStream(os.dup(self._streams.incoming)),
            trio.lowlevel.FdStream(os.dup(self._streams.outgoing)),
            max_bytes=runtime.limits.frame_bytes_in,
            peer=_NAME,
            on_end=self._over,
        )
        runtime.start_connection(partial(self._attend, runtime, transport), name=_NAME)
        task_status.started()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Restore both streams."""
        self._streams.restore()

    async def _attend(self, runtime: Runtime, transport: Transport) -> None:
        try:
            # The client may take its time to say hello, since it keeps no other client out.
            await runtime.attend(transport, deadline=math.inf)
        finally:
            self._over()
