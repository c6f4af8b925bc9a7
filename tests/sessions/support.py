"""What the tests of sessions share: two principals, an agent on strings, and ways to come back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio import Authenticator, JobContext, Limits, MemoryStore, Runtime, StaticTokens
from arcp_trio.store.writes import Write
from arcp_trio.testing import Peer, PeerFactory, TrioClock, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.transport import TransportClosed
from tests.inside import table_sizes

OTHER_TOKEN = "other-token"
"""Of a principal that has nothing to do with the one of `TEST_TOKEN`."""

TOKENS = StaticTokens({TEST_TOKEN: "alice", OTHER_TOKEN: "bob"})


class Puppet:
    """An agent that logs what its test has it say, and returns when it is let go."""

    def __init__(self) -> None:
        self._lines, self._said = trio.open_memory_channel[str](0)
        self.runs = 0

    async def play(self, job: JobContext) -> str:
        """Be the agent."""
        self.runs += 1
        async for line in self._said:
            await job.log(line)
        return "done"

    async def say(self, *lines: str) -> None:
        """Have it log these, and let everyone notice."""
        for line in lines:
            await self._lines.send(line)
        await wait_all_tasks_blocked()

    async def finish(self) -> None:
        """Have it return."""
        self._lines.close()
        await wait_all_tasks_blocked()


class PausingStore(MemoryStore):
    """A store that can be made to take its time."""

    def __init__(self) -> None:
        super().__init__()
        self._may_commit = trio.Event()
        self._may_commit.set()

    def pause(self) -> None:
        """Store nothing until told to go on."""
        self._may_commit = trio.Event()

    def go_on(self) -> None:
        """Store what has come meanwhile, and from now on at once."""
        self._may_commit.set()

    async def _commit(self, writes: Sequence[Write]) -> None:
        await self._may_commit.wait()
        await super()._commit(writes)


class Stage:
    """A runtime with agents, and peers that connect to it."""

    def __init__(self, runtime: Runtime, peers: PeerFactory, store: PausingStore) -> None:
        self.runtime = runtime
        self.store = store
        self.recorder = peers.recorder
        self.connect = peers.connect
        self.puppet = Puppet()
        runtime.agent("puppet")(self.puppet.play)

        @runtime.agent("chatty")
        async def chatty(job: JobContext) -> int:
            """Log as many lines of a kilobyte as its input says."""
            for n in range(job.input):
                await job.log(f"{n:01000}")
            return int(job.input)

        @runtime.agent("sleeper")
        async def sleeper(job: JobContext) -> str:
            """Say so, sleep as long as its input says, and say so again."""
            await job.log("asleep")
            await trio.sleep(job.input)
            await job.log("awake")
            return "slept"

    async def welcomed(self, *, answer_pings: bool = True) -> Peer:
        """A peer with a new session."""
        peer = await self.connect(answer_pings=answer_pings)
        await peer.hello()
        return peer

    async def resumed(self, resume: Frame) -> Peer:
        """A peer that goes on with a session."""
        peer = await self.connect()
        await peer.hello(resume=resume)
        return peer

    async def refused(self, resume: Frame, *, token: str = TEST_TOKEN) -> Frame:
        """The words with which a resume in a hello is refused."""
        peer = await self.connect()
        await peer.send("session.hello", hello_payload(token=token) | {"resume": resume})
        words = await refusal(peer)
        await peer.close()
        return words

    def remembered(self) -> dict[str, int]:
        """How many entries there are in the runtime's tables, and in the store's but for jobs."""
        tables = attrs.asdict(self.store.tables, recurse=False)
        of_jobs = {"journals", "listed", "finished", "keys"}
        stored = {
            name: len(table)
            for name, table in tables.items()
            if isinstance(table, dict | list) and name not in of_jobs
        }
        return table_sizes(self.runtime) | stored


@asynccontextmanager
async def open_stage(
    *, auth: Authenticator = TOKENS, **limits: float
) -> AsyncGenerator[Stage, None]:
    """Run a runtime with these limits for as long as the block lasts."""
    store = PausingStore()
    runtime = Runtime(auth=auth, store=store, limits=Limits(**limits), clock=TrioClock())  # type: ignore[arg-type]
    async with runtime, open_peers(runtime) as peers:
        yield Stage(runtime, peers, store)


def hello_payload(*, token: str = TEST_TOKEN) -> Frame:
    """A hello with nothing special about it."""
    return {
        "client": {"name": "tests", "version": "1"},
        "auth": {"scheme": "bearer", "token": token},
        "capabilities": {"encodings": ["json"], "features": ["heartbeat", "ack", "progress"]},
    }


async def refusal(peer: Peer) -> Frame:
    """The one frame that comes before the socket is closed, its payload without `request_id`."""
    frame = await peer.receive()
    assert frame["type"] == "session.error", frame
    assert await close_code(peer) == 1008
    return {name: value for name, value in frame["payload"].items() if name != "request_id"}


async def close_code(peer: Peer) -> int | None:
    """Read on until the socket is closed, and return the code it was closed with."""
    try:
        while True:
            peer.seen.append(await peer.receive())
    except TransportClosed as closed:
        return closed.code


def lines(frames: list[Frame]) -> list[str]:
    """What was logged in these frames."""
    return [frame["payload"]["body"]["message"] for frame in frames if frame["type"] == "job.event"]


async def up_to(peer: Peer, seq: int) -> list[Frame]:
    """Receive until the frame with this number."""
    frames = [await peer.receive()]
    while frames[-1].get("event_seq") != seq:
        frames.append(await peer.receive())
    return frames
