"""What the tests of subscriptions and listings share: jobs that log what their test says."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import trio

from arcp_trio import JobContext, Limits, MemoryStore, Policy, Runtime
from arcp_trio.store.interface import Store
from arcp_trio.store.writes import Write
from arcp_trio.testing import Peer, PeerFactory, WireRecorder
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.stage import Stage

FEATURES = ("agent_versions", "cost.budget", "lease_expires_at", "list_jobs", "subscribe")
"""A client's features without heartbeat, so that one which does not read is not lost, and without
acknowledgements, so that one which falls behind gets no notice between the events."""


class _Desk:
    """The channel over which a job gets its orders."""

    def __init__(self) -> None:
        self.orders, self.open = trio.open_memory_channel[tuple[int, trio.Event]](0)


class Scene(Stage[Store]):
    """A stage with an agent that logs its next numbers when its test says so."""

    features = FEATURES

    def __init__(self, runtime: Runtime, peers: PeerFactory, store: Store) -> None:
        super().__init__(runtime, peers, store)
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

    async def resumed(self, peer: Peer) -> Peer:
        """Drop a client's connection, and return a client that has resumed its session."""
        await peer.drop()
        return await self.welcomed(resume=peer.resume_from())

    def slow_down_commits(self) -> None:
        """Make each commit take a second from now on."""
        commit = self.store._commit

        async def slow(writes: Sequence[Write]) -> None:
            await trio.sleep(1)
            await commit(writes)

        self.store._commit = slow  # type: ignore[method-assign]

    async def say(self, job_id: str, count: int = 1) -> None:
        """Have a job log its next `count` numbers; return once they are stored."""
        done = trio.Event()
        await self._desk(job_id).orders.send((count, done))
        await done.wait()
        await self.store.flushed()

    async def end(self, peer: Peer, job_id: str) -> None:
        """Have a job return, and its submitter read the terminal."""
        self._desk(job_id).orders.close()
        await peer.until_terminal(job_id)


def open_scene(
    store: Store | None = None,
    *,
    policy: Policy | None = None,
    recorder: WireRecorder | None = None,
    **limits: float,
) -> AbstractAsyncContextManager[Scene]:
    """Run a stage with these limits for as long as the block lasts; see `Stage.open`."""
    return Scene.open(
        store or MemoryStore(),
        policy=policy,
        recorder=recorder,
        limits=Limits(**limits),  # type: ignore[arg-type]
        operators=["operator"],
    )


async def subscribe(peer: Peer, job_id: str, **fields: Json) -> Frame:
    """Subscribe, and return the payload of the answer.

    Raises:
        ArcpError: the class of the refusal's code.
    """
    request = await peer.send("job.subscribe", {"job_id": job_id} | fields)
    return await peer.answer("job.subscribed", request)


async def listing(peer: Peer, **fields: Json) -> Frame:
    """Ask for a listing, and return the payload of the answer.

    Raises:
        ArcpError: the class of the refusal's code.
    """
    request = await peer.send("session.list_jobs", fields)
    return await peer.answer("session.jobs", request)


async def settled(peer: Peer) -> list[Frame]:
    """Return every frame that a client has passed over, after an answered request."""
    request = await peer.send("session.list_jobs", {"limit": 1})
    await peer.answer("session.jobs", request)
    return peer.seen


async def watched(scene: Scene, peer: Peer) -> dict[str, int]:
    """Return what a session watches according to the store, with its cursors."""
    await scene.store.flushed()
    row = await scene.store.session(str(peer.session_id))
    assert row is not None
    return row.watches


def said(frames: list[Frame]) -> list[str]:
    """Return the messages of events, and the types of the other numbered frames."""
    return [
        frame["payload"]["body"]["message"] if frame["type"] == "job.event" else frame["type"]
        for frame in frames
        if "event_seq" in frame
    ]
