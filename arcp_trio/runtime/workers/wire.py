"""The runtime's end of the socket to a worker: whole frames, out and in."""

from __future__ import annotations

from array import array
from contextlib import suppress
from typing import Final

import trio

from arcp_trio.runtime.workers.messages import Unpacker, WorkerFrame, packed

_READ_BYTES: Final = 64 * 1024
_ANSWER_BYTES: Final = 64
"""Bytes of a frame by which a worker says that it lives, at most."""
FRAMES_A_TURN: Final = 64
"""Frames of a worker that are looked at before others have a turn."""


class WorkerLost(Exception):  # noqa: N818 - what happened to the worker
    """The worker has ended, or has sent what is not a frame."""


class Wire:
    """The runtime's end of the socket to a worker."""

    def __init__(self, socket: trio.socket.SocketType) -> None:
        self._socket = socket
        self._sending = trio.StrictFIFOLock()
        self._unpacker = Unpacker()
        self._received = 0
        """Frames since the last checkpoint."""
        self._asked = False
        """Whether the worker was asked for a sign of life, and has given none so far."""

    async def send(self, frame: WorkerFrame, descriptor: int | None = None) -> None:
        """Send a frame, with a descriptor if it has one.

        Raises:
            WorkerLost: the worker has ended.
        """
        rights: list[tuple[int, int, array[int]]] = []
        if descriptor is not None:
            rights = [(trio.socket.SOL_SOCKET, trio.socket.SCM_RIGHTS, array("i", [descriptor]))]
        # Without a shield: only the end of the job cuts a frame off, and the worker ends with it.
        async with self._sending:
            data = memoryview(packed(frame))
            try:
                sent = await self._socket.sendmsg([data], rights)
                while sent < len(data):
                    sent += await self._socket.send(data[sent:])
            except OSError as error:
                raise WorkerLost("the agent's process ended") from error

    async def sign_of_life(self) -> None:
        """Ask a worker without a job for a sign of life, and wait for it.

        Cancellation: leaves the question open; the next call waits for its answer.

        Raises:
            WorkerLost: the worker has ended, or has sent something else.
        """
        if not self._asked:
            await self.send(WorkerFrame("ask"))
            self._asked = True
        if (await self.receive(_ANSWER_BYTES)).kind != "alive":
            raise WorkerLost("the agent's process sent a call without a job")
        self._asked = False

    async def receive(self, most_bytes: int) -> WorkerFrame:
        """Return the next frame.

        Raises:
            WorkerLost: the worker has ended, or has sent what is not a frame.
        """
        try:
            while (frame := self._unpacker.next(most_bytes)) is None:
                # Not recvmsg: descriptors that a worker might send are not taken.
                data = await self._socket.recv(_READ_BYTES)
                self._received = 0
                if not data:
                    raise WorkerLost("the agent's process ended")
                self._unpacker.feed(data)
        except OSError as error:
            raise WorkerLost("the agent's process ended") from error
        except ValueError as error:
            raise WorkerLost(f"the agent's process sent {error}") from error
        self._received += 1
        if self._received >= FRAMES_A_TURN:
            self._received = 0
            await trio.lowlevel.checkpoint()
        return frame

    def shut_down(self) -> None:
        """Have whatever reads or writes next meet the end, after what has arrived so far."""
        with suppress(OSError):  # the worker has ended the connection, or it is closed
            self._socket.shutdown(trio.socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket: a worker that is idle ends."""
        self._socket.close()
