"""What the tests of flow share: agents on a tap, and clients that read what they are told to."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio import JobContext, Limits, MemoryStore, Runtime
from arcp_trio.testing import Peer, PeerFactory
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.stage import Stage

QUIET = ("ack", "progress", "agent_versions")
"""A client's features without heartbeat, so that one which does not read is not lost."""
NOTHING_TOLD = ("progress", "agent_versions")
"""Also without acknowledgements, so that a client which falls behind gets no notice between."""


class Tap:
    """An agent that logs as many lines as its test lets out, and returns when it is shut."""

    def __init__(self) -> None:
        self.runs = 0
        self.emitted = 0
        self.size = 10
        self._lines, self._asked = trio.open_memory_channel[int](0)

    async def play(self, job: JobContext) -> Json:
        """Run the agent."""
        self.runs += 1
        async for count in self._asked:
            for _ in range(count):
                await job.log("x" * self.size)
                self.emitted += 1
        return "shut"

    async def let_out(self, count: int) -> None:
        """Have `count` lines logged; return when they are, or when all tasks are blocked."""
        await self._lines.send(count)
        await wait_all_tasks_blocked()

    async def shut(self) -> None:
        """Have the agent return."""
        self._lines.close()
        await wait_all_tasks_blocked()


class Flow(Stage[MemoryStore]):
    """A stage with a tap and a few other agents."""

    features = QUIET

    def __init__(self, runtime: Runtime, peers: PeerFactory, store: MemoryStore) -> None:
        super().__init__(runtime, peers, store)
        self.tap = self.add_tap("tap")
        self.runs: list[Json] = []
        """The inputs of all runs of the agents below."""

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
            """Log a line, and sleep until the job is ended."""
            self.runs.append(job.input)
            await job.log("asleep")
            await trio.sleep_forever()

    def add_tap(self, name: str) -> Tap:
        """Register another tap under this name."""
        tap = Tap()
        self.runtime.agent(name)(tap.play)
        return tap

    async def resumed(self, peer: Peer, after: int | None = None) -> Peer:
        """Return a client that has resumed another's session, from its number or from `after`.

        Raises:
            ArcpError: the resume was refused.
        """
        resume: Frame = peer.resume_from()
        if after is not None:
            resume["last_event_seq"] = after
        return await self.welcomed(resume=resume)


def open_flow(
    store: MemoryStore | None = None, /, **limits: int
) -> AbstractAsyncContextManager[Flow]:
    """Run a stage with these limits for as long as the block lasts."""
    return Flow.open(store or MemoryStore(), limits=Limits(**limits))


async def ack(peer: Peer, seq: Json) -> str:
    """Acknowledge up to this number, and wait until all tasks are blocked."""
    request = await peer.send("session.ack", {"last_processed_seq": seq})
    await wait_all_tasks_blocked()
    return request


async def read_to(peer: Peer, seq: int) -> list[Frame]:
    """Read up to the frame with this number, and return the numbered ones."""
    frames: list[Frame] = []
    while not frames or frames[-1]["event_seq"] < seq:
        frame = await peer.receive()
        if "event_seq" in frame:
            frames.append(frame)
    return frames


def told(frames: list[Frame]) -> list[Frame]:
    """Return the back-pressure notices among these frames."""
    return [
        frame
        for frame in frames
        if frame["payload"].get("kind") == "status"
        and frame["payload"]["body"]["phase"] == "back_pressure"
    ]


def same(one: Frame, other: Frame) -> bool:
    """Return whether two acceptances differ in the request they answer at most."""
    return one | {"request_id": None} == other | {"request_id": None}
