"""`arcp-trio serve --stdio`: one session, with whoever has started the process (§4)."""

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

import arcp_trio
from arcp_trio.cli.errors import CommandError
from arcp_trio.transport.base import Transport
from arcp_trio.transport.stdio import LineTransport

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2
_NAME: Final = "standard input and output"


@attrs.frozen
class StandardStreams:
    """What standard input and output were: ours alone, and inherited by no program."""

    incoming: int
    outgoing: int
    _blocking: Mapping[int, bool]

    @classmethod
    def take(cls) -> StandardStreams:
        """Take them for the frames, so that nothing else can get in between.

        What an agent prints, or a library or a program that it starts writes, goes to standard
        error; who reads standard input finds its end. That stays so, up to the process's last
        word.

        Raises:
            CommandError: they are not there.
        """
        if None in (sys.__stdin__, sys.__stdout__, sys.__stderr__):  # it was closed at the start
            raise CommandError("--stdio needs standard input, output and error")
        incoming, outgoing = os.dup(_INPUT), os.dup(_OUTPUT)
        os.dup2(_ERRORS, _OUTPUT)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, _INPUT)
        os.close(nothing)
        return cls(
            incoming, outgoing, {each: os.get_blocking(each) for each in (incoming, outgoing)}
        )

    def restore(self) -> None:
        """Have them block as before: other processes have the same open files."""
        for descriptor, blocking in self._blocking.items():
            with suppress(OSError):
                os.set_blocking(descriptor, blocking)

    def leave(self, exit_code: int) -> NoReturn:
        """End the process at once."""
        self.restore()
        os._exit(exit_code)


@attrs.frozen
class StandardDoor:
    """Lets one client in: the process that has started this one. Stands where `Doors` may."""

    _streams: StandardStreams
    _over: Callable[[], None]
    """Called when the client has said all it had to say, or is gone."""

    @property
    def url(self) -> None:
        """Nobody else can connect."""

    @property
    def reloads(self) -> dict[str, Callable[[], None]]:
        """There is nothing to read again."""
        return {}

    async def serve(
        self,
        runtime: arcp_trio.Runtime,
        *,
        task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Have `runtime` begin to attend to the client."""
        # Copies, because a stream closes what it is given.
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
        """Leave both streams as they were found."""
        self._streams.restore()

    async def _attend(self, runtime: arcp_trio.Runtime, transport: Transport) -> None:
        try:
            # It may take its time: it keeps nobody out.
            await runtime.attend(transport, deadline=math.inf)
        finally:
            self._over()
