"""What the tests of flow share: agents on a tap, and peers that read no more than they are told."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio import JobContext, Limits, MemoryStore, Runtime, StaticTokens
from arcp_trio.testing import Peer, PeerFactory, TrioClock, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.json import Json

BOB = "bob-token"
"""Of another principal than the one of `TEST_TOKEN`."""

QUIET = ("ack", "progress", "agent_versions")
"""Without heartbeat, so that a peer which does not read is not lost by its silence."""


class Tap:
    """An agent that logs as many lines as its test lets out, and returns when it is shut."""

    def __init__(self) -> None:
        self.runs = 0
        self.emitted = 0
        self.size = 10
        self._lines, self._asked = trio.open_memory_channel[int](0)

    async def play(self, job: JobContext) -> Json:
        """Be the agent."""
        self.runs += 1
        async for count in self._asked:
            for _ in range(count):
                await job.log("x" * self.size)
                self.emitted += 1
        return "shut"

    async def let_out(self, count: int) -> None:
        """Have so many lines logged; return when they are, or when nothing moves any more."""
        await self._lines.send(count)
        await wait_all_tasks_blocked()

    async def shut(self) -> None:
        """Have the agent return."""
        self._lines.close()
        await wait_all_tasks_blocked()


class Flow:
    """A runtime with a tap and a few other agents, and peers to it."""

    def __init__(self, runtime: Runtime, peers: PeerFactory, store: MemoryStore) -> None:
        self.runtime = runtime
        self.store = store
        self.recorder = peers.recorder
        self.connect = peers.connect
        self.tap = self.add_tap("tap")
        self.runs: list[Json] = []
        """The inputs of every run of the agents below."""

        @runtime.agent("echo", version="1.0.0", default=True)
        async def echo(job: JobContext) -> Json:
            """Return the input."""
            self.runs.append(job.input)
            return job.input

        @runtime.agent("echo", version="2.0.0")
        async def louder(job: JobContext) -> Json:
            """Return the input twice."""
            self.runs.append(job.input)
            return [job.input, job.input]

        @runtime.agent("sleeper")
        async def sleeper(job: JobContext) -> Json:
            """Log a line, and sleep until it is ended."""
            self.runs.append(job.input)
            await job.log("asleep")
            await trio.sleep_forever()

    def add_tap(self, name: str) -> Tap:
        """Another tap, as an agent of that name."""
        tap = Tap()
        self.runtime.agent(name)(tap.play)
        return tap

    async def welcomed(self, *, token: str = TEST_TOKEN) -> Peer:
        """A peer with a new session."""
        peer = await self.connect()
        await peer.hello(token=token, features=QUIET)
        return peer

    async def resumed(self, peer: Peer, after: int | None = None) -> Peer:
        """A peer that goes on with another's session, from where that was or after a number.

        Raises:
            ArcpError: the resume was refused.
        """
        resume: Frame = peer.resume_from()
        if after is not None:
            resume["last_event_seq"] = after
        again = await self.connect()
        await again.hello(features=QUIET, resume=resume)
        return again


@asynccontextmanager
async def open_flow(
    store: MemoryStore | None = None, /, **limits: int
) -> AsyncGenerator[Flow, None]:
    """Run a runtime with these limits for as long as the block lasts."""
    store = store or MemoryStore()
    runtime = Runtime(
        auth=StaticTokens({TEST_TOKEN: "alice", BOB: "bob"}),
        store=store,
        limits=Limits(**limits),
        clock=TrioClock(),
    )
    async with runtime, open_peers(runtime) as peers:
        yield Flow(runtime, peers, store)


async def ack(peer: Peer, seq: Json) -> str:
    """Acknowledge, and let the runtime take it in."""
    request = await peer.send("session.ack", {"last_processed_seq": seq})
    await wait_all_tasks_blocked()
    return request


async def read_to(peer: Peer, seq: int) -> list[Frame]:
    """Read up to the frame with that number, and return those with one."""
    frames: list[Frame] = []
    while not frames or frames[-1]["event_seq"] < seq:
        frame = await peer.receive()
        if "event_seq" in frame:
            frames.append(frame)
    return frames


def told(frames: list[Frame]) -> list[Frame]:
    """The back-pressure notices among these frames."""
    return [
        frame
        for frame in frames
        if frame["payload"].get("kind") == "status"
        and frame["payload"]["body"]["phase"] == "back_pressure"
    ]


def same(one: Frame, other: Frame) -> bool:
    """Whether two acceptances are the same but for the request they answer."""
    return one | {"request_id": None} == other | {"request_id": None}
