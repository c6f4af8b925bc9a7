"""What the tests of abuse share: a runtime at a real port, a good client, and hostile ones."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

from arcp_trio import Agents, JobContext, Json, Runtime, serve
from arcp_trio.testing.frames import Frame, parse_frame
from arcp_trio.testing.peer import Peer
from arcp_trio.testing.recorder import WireRecorder
from arcp_trio.transport import connect
from arcp_trio.wire.json import JsonObject
from tests.protocol.support import text_of
from tests.stage import BOB
from tests.transport.peers import TEXT, RawPeer, frame

MAX_BYTES = 4 * 1024 * 1024
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST
agents = Agents()
"""Agents that are short, endless or as fast as they can."""


@agents.agent("echo")
async def echo(job: JobContext) -> Json:
    """Return the input."""
    return job.input


@agents.agent("chatty")
async def chatty(job: JobContext) -> Json:
    """Log as many numbered lines as the input says; without an input, log until cancelled."""
    for n in itertools.count() if job.input is None else range(job.input):
        await job.log(str(n))
    return job.input


@asynccontextmanager
async def serving(runtime: Runtime) -> AsyncGenerator[int]:
    """Enter the runtime and listen; the block gets the port."""
    async with runtime, trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(partial(serve, runtime, port=0))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


# -- good clients


@asynccontextmanager
async def peer_of(port: int, recorder: WireRecorder | None = None) -> AsyncGenerator[Peer]:
    """Connect a client over a real socket whose frames are all checked, before its hello."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with connect(stream, max_bytes=MAX_BYTES) as transport:
        yield Peer(transport, stream, recorder or WireRecorder())


async def is_served(peer: Peer, said: Json = None) -> None:
    """Check that a session has a job done, reading everything that came before."""
    job = await peer.submit("echo", said)
    assert (await peer.until_terminal(job["job_id"]))["payload"]["result"] == said


class Witness:
    """A good session whose job logs as fast as it can; each frame is checked."""

    def __init__(self, peer: Peer, job_id: str) -> None:
        self.peer = peer
        self.lines = 0
        self._job_id = job_id
        self._heard = trio.lowlevel.ParkingLot()

    async def listen(self) -> None:
        """Receive until the job has ended."""
        while True:
            # The recorder has checked that the numbers have no gap.
            frame = await self.peer.receive()
            if frame["type"] == "job.event":
                assert frame["payload"]["body"]["message"] == str(self.lines)
                self.lines += 1
                self._heard.unpark_all()
            elif frame["type"] == "job.error":
                assert frame["payload"]["code"] == "CANCELLED"
                return

    async def hears_more(self, lines: int = 50) -> None:
        """Wait for this many more lines."""
        until = self.lines + lines
        while self.lines < until:
            await self._heard.park()

    async def stop(self) -> None:
        """Cancel the job."""
        await self.peer.send("job.cancel", {"job_id": self._job_id})


@asynccontextmanager
async def witness_of(port: int) -> AsyncGenerator[Witness]:
    """Provide a witness for the block, and check after it that it has missed nothing."""
    async with peer_of(port) as peer:
        await peer.hello(features=())  # without ack, it gets no notice of falling behind
        witness = Witness(peer, (await peer.submit("chatty"))["job_id"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(witness.listen)
            yield witness
            await witness.hears_more()
            await witness.stop()
        await is_served(peer, "after all that")
        await peer.send("session.close")
        await peer.expect("session.closed")


# -- hostile clients


def hello_payload(token: str = BOB) -> JsonObject:
    """Return the hello of a principal that is known and hostile."""
    return {
        "client": {"name": "mallory"},
        "auth": {"scheme": "bearer", "token": token},
        "capabilities": {"features": ["ack", "progress", "agent_versions"]},
    }


def says(kind: str, payload: JsonObject | None = None) -> bytes:
    """Return a whole message as a WebSocket frame."""
    return frame(TEXT, text_of(kind, payload or {}).encode())


def hello(token: str = BOB) -> bytes:
    """Return a whole hello as a WebSocket frame."""
    return says("session.hello", hello_payload(token))


@asynccontextmanager
async def hands_on(port: int, *, reset: bool) -> AsyncGenerator[RawPeer]:
    """Provide a bare connection, which ends by RST or FIN whatever is under way."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    try:
        # Sending fails once the other side has closed.
        with suppress(trio.BrokenResourceError, EOFError):
            yield RawPeer(stream)
    finally:
        if reset:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        await trio.aclose_forcefully(stream)


@asynccontextmanager
async def raw_session(port: int) -> AsyncGenerator[RawPeer]:
    """Provide a session whose WebSocket frames are made by hand."""
    async with hands_on(port, reset=False) as peer:
        await peer.shake_hands(along=hello())
        await expect_text(peer, "session.welcome")
        yield peer


async def expect_text(peer: RawPeer, kind: str) -> Frame:
    """Receive one text frame with a message of this type."""
    first, text = await peer.receive()
    assert first == TEXT
    message = parse_frame(text.decode())
    assert message["type"] == kind, message
    return message
