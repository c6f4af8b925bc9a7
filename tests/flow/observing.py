"""What the tests of subscriptions and listings share: jobs that say what they are told to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager

import trio

from arcp_trio import JobContext, Limits, MemoryStore, Policy, Runtime, StaticTokens
from arcp_trio.store.interface import Store
from arcp_trio.store.writes import Write
from arcp_trio.testing import Peer, PeerFactory, TrioClock, WireRecorder, open_peers
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.json import Json
from tests.store.engines import ENGINES

BOB, AUDITOR, OPERATOR = "bob-token", "auditor-token", "operator-token"
"""Of other principals than the one of `TEST_TOKEN`, who is alice."""

FEATURES = ("ack", "agent_versions", "cost.budget", "lease_expires_at", "list_jobs", "subscribe")
"""Without heartbeat, so that a peer which does not read is not lost by its silence."""

STORES: list[Callable[[], AbstractContextManager[Store]]] = [engine.make for engine in ENGINES]
STORE_NAMES = [engine.name for engine in ENGINES]


class _Desk:
    """Where a job is told what to say."""

    def __init__(self) -> None:
        self.orders, self.open = trio.open_memory_channel[tuple[int, trio.Event]](0)


class Scene:
    """A runtime with an agent that says what its test wants, and peers to it."""

    def __init__(self, runtime: Runtime, peers: PeerFactory, store: Store) -> None:
        self.runtime = runtime
        self.store = store
        self.recorder = peers.recorder
        self._connect = peers.connect
        self._desks: dict[str, _Desk] = {}
        for version in ("1.0.0", "2.0.0"):
            runtime.agent("teller", version=version, default=version == "2.0.0")(self._tell)

        @runtime.agent("echo")
        async def echo(job: JobContext) -> Json:
            """Return the input."""
            return job.input

    async def _tell(self, job: JobContext) -> Json:
        said = 0
        async for count, done in self._desk(job.id).open:
            for _ in range(count):
                await job.log(str(said))
                said += 1
            done.set()
        return said

    def _desk(self, job_id: str) -> _Desk:
        return self._desks.setdefault(job_id, _Desk())

    async def peer(self, *, token: str = TEST_TOKEN, resume: Frame | None = None) -> Peer:
        """A peer with a session, a new one or another's."""
        peer = await self._connect()
        await peer.hello(token=token, features=FEATURES, resume=resume)
        return peer

    async def resumed(self, peer: Peer) -> Peer:
        """A peer that goes on where another, whose connection is dropped, has come to."""
        await peer.drop()
        return await self.peer(resume=peer.resume_from())

    def slow_down_commits(self) -> None:
        """From now on each takes a second."""
        commit = self.store._commit

        async def slow(writes: Sequence[Write]) -> None:
            await trio.sleep(1)
            await commit(writes)

        self.store._commit = slow  # type: ignore[method-assign]

    async def say(self, job_id: str, count: int = 1) -> None:
        """Have a job say its next numbers; return once they are stored."""
        done = trio.Event()
        await self._desk(job_id).orders.send((count, done))
        await done.wait()
        await self.store.flushed()

    async def end(self, peer: Peer, job_id: str) -> None:
        """Have a job return, and its submitter read that."""
        self._desk(job_id).orders.close()
        await peer.until_terminal(job_id)


@asynccontextmanager
async def open_scene(
    store: Store | None = None,
    *,
    policy: Policy | None = None,
    recorder: WireRecorder | None = None,
    **limits: float,
) -> AsyncGenerator[Scene, None]:
    """Run a runtime with these limits for as long as the block lasts.

    With the recorder of another one, sessions of that may be gone on with.
    """
    store = store or MemoryStore()
    tokens = {TEST_TOKEN: "alice", BOB: "bob", AUDITOR: "auditor", OPERATOR: "operator"}
    runtime = Runtime(
        auth=StaticTokens(tokens),
        store=store,
        limits=Limits(**limits),  # type: ignore[arg-type]
        clock=TrioClock(),
        operators=["operator"],
        policy=policy,
    )
    async with runtime, open_peers(runtime) as peers:
        peers.recorder = recorder or peers.recorder
        yield Scene(runtime, peers, store)


async def subscribe(peer: Peer, job_id: str, **fields: Json) -> Frame:
    """Subscribe; what that is answered.

    Raises:
        ArcpError: the class of the refusal's code.
    """
    request = await peer.send("job.subscribe", {"job_id": job_id} | fields)
    return await peer.answer("job.subscribed", request)


async def listing(peer: Peer, **fields: Json) -> Frame:
    """Ask for a listing.

    Raises:
        ArcpError: the class of the refusal's code.
    """
    request = await peer.send("session.list_jobs", fields)
    return await peer.answer("session.jobs", request)


async def settled(peer: Peer) -> list[Frame]:
    """Everything that has come to a peer, up to now."""
    request = await peer.send("session.list_jobs", {"limit": 1})
    await peer.answer("session.jobs", request)
    return peer.seen


async def watched(scene: Scene, peer: Peer) -> dict[str, int]:
    """What the store says that a session watches, with its cursors."""
    await scene.store.flushed()
    row = await scene.store.session(str(peer.session_id))
    assert row is not None
    return row.watches


async def until_end(peer: Peer, job_id: str) -> list[Frame]:
    """What comes, up to a job's terminal."""
    frames = [await peer.receive()]
    while frames[-1].get("job_id") != job_id or frames[-1]["type"] not in TERMINAL:
        frames.append(await peer.receive())
    return frames


def said(frames: list[Frame]) -> list[str]:
    """What stands in the events, and the types of the other numbered frames."""
    return [
        frame["payload"]["body"]["message"] if frame["type"] == "job.event" else frame["type"]
        for frame in frames
        if "event_seq" in frame
    ]


def numbers(frames: list[Frame]) -> list[int]:
    """The numbers of those that have one."""
    return [frame["event_seq"] for frame in frames if "event_seq" in frame]
