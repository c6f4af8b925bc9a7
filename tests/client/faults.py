"""A network that fails at chosen frames: a proxy between a client and a runtime."""

from __future__ import annotations

import enum
from collections.abc import Collection

import trio
from attrs import define, field

from arcp_trio import Runtime
from arcp_trio.transport import memory_streams
from tests.client.support import Network

FAR = 200.0
"""A delay, in seconds, that is longer than two heartbeat intervals."""


class Fault(enum.Enum):
    """A fault that a frame meets."""

    CUT = "the connection ends before it"
    CUT_WITHIN = "the connection ends in the middle of it"
    CUT_AFTER = "the connection ends right after it"
    STALL = "it and all frames after it are delayed for very long"
    HALF_OPEN = "from it on nothing passes in either direction, and neither side is told"
    DUPLICATE = "it comes twice"


@define(eq=False)
class FaultyNetwork:
    """Connects like `Network`; the frames with the numbers `at` meet the fault."""

    runtime: Runtime
    nursery: trio.Nursery
    fault: Fault | None = None
    at: Collection[int] = ()
    to_client: bool = True
    hits: int = 0
    """How many frames have met it."""
    frames: list[int] = field(factory=lambda: [0, 0])
    """How many frames there were to the client, and to the runtime."""
    _inner: Network = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._inner = Network(self.runtime)

    async def open(self) -> trio.abc.Stream:
        """Connect through the proxy."""
        ours, theirs = memory_streams()
        self.nursery.start_soon(self._proxy, theirs, await self._inner.open())
        return ours

    async def _proxy(self, client: trio.abc.Stream, runtime: trio.abc.Stream) -> None:
        pipes = _Pipes(client, runtime)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pump, pipes, runtime, client, True)  # noqa: FBT003
            nursery.start_soon(self._pump, pipes, client, runtime, False)  # noqa: FBT003
            await pipes.over.wait()
            await trio.aclose_forcefully(client)
            await trio.aclose_forcefully(runtime)
            nursery.cancel_scope.cancel()

    async def _pump(
        self,
        pipes: _Pipes,
        source: trio.abc.Stream,
        sink: trio.abc.Stream,
        to_client: bool,  # noqa: FBT001
    ) -> None:
        splitter = Splitter()
        try:
            while data := await source.receive_some(65536):
                for piece, is_frame in splitter.split(bytes(data)):
                    fault = self._fault(to_client=to_client) if is_frame else None
                    await self._pass(pipes, sink, piece, fault)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        pipes.over.set()

    def _fault(self, *, to_client: bool) -> Fault | None:
        index = 0 if to_client else 1
        number = self.frames[index]
        self.frames[index] += 1
        hit = number in self.at and to_client is self.to_client
        self.hits += hit
        return self.fault if hit else None

    async def _pass(
        self, pipes: _Pipes, sink: trio.abc.Stream, piece: bytes, fault: Fault | None
    ) -> None:
        if fault is Fault.HALF_OPEN:
            pipes.dead = True
        if pipes.dead:
            return
        if fault is Fault.STALL:
            await trio.sleep(FAR)
        if fault is Fault.CUT_WITHIN:
            await sink.send_all(piece[: len(piece) // 2])
        elif fault is not Fault.CUT:
            await sink.send_all(piece * (2 if fault is Fault.DUPLICATE else 1))
        if fault in (Fault.CUT, Fault.CUT_WITHIN, Fault.CUT_AFTER):
            pipes.over.set()
            await trio.sleep_forever()


@define(eq=False)
class _Pipes:
    client: trio.abc.Stream
    runtime: trio.abc.Stream
    dead: bool = False
    over: trio.Event = field(factory=trio.Event)


class Splitter:
    """Cuts a stream of bytes into the head of HTTP and WebSocket frames."""

    def __init__(self) -> None:
        self._buffer = b""
        self._head_over = False

    def split(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Take bytes; return the pieces that are complete now, each with whether it is a frame."""
        self._buffer += data
        pieces: list[tuple[bytes, bool]] = []
        while (size := self._next()) is not None:
            pieces.append((self._buffer[:size], self._head_over))
            self._head_over = True
            self._buffer = self._buffer[size:]
        return pieces

    def _next(self) -> int | None:
        buffer = self._buffer
        if not self._head_over:
            end = buffer.find(b"\r\n\r\n")
            return None if end < 0 else end + 4
        if len(buffer) < 2:
            return None
        size, start = buffer[1] & 0x7F, 2
        width = {126: 2, 127: 8}.get(size, 0)
        if width:
            size = int.from_bytes(buffer[2 : 2 + width], "big")
        end = start + width + (4 if buffer[1] & 0x80 else 0) + size
        return end if len(buffer) >= end else None
