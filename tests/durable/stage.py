"""Runtimes that are killed and started again over a durable store in memory, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Self

import trio

from arcp_trio import Agents, Limits, MemoryStore, Policy, Provisioner, Runtime
from arcp_trio.testing import Peer, TrioClock, WireRecorder, open_peers
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.transport import TransportClosed
from arcp_trio.wire.features import ALL_FEATURES, CLIENT_FEATURES
from tests.durability.stores import copy_into
from tests.durable.comparing import in_short
from tests.stage import make_runtime


class DurableStore(MemoryStore):
    """A store in memory that says it is durable, as what is killed here is a runtime only."""

    durable = True


class Life:
    """One runtime of a test, from its start to its end or its death, and a client of it."""

    def __init__(
        self,
        runtime: Runtime,
        store: DurableStore,
        peer: Peer,
        recorder: WireRecorder,
        clock: TrioClock,
        connect: Callable[[], Awaitable[Peer]],
    ) -> None:
        self.runtime = runtime
        self.store = store
        self.peer = peer
        self.clock = clock
        self._recorder = recorder
        self._connect = connect

    def killed(self) -> DurableStore:
        """Return what is stored now, as the next process finds it if this one is killed."""
        return copy_into(DurableStore(), self.store)

    @classmethod
    @asynccontextmanager
    async def begin(
        cls,
        agents: Agents,
        store: DurableStore | None = None,
        *,
        before: Life | None = None,
        clock: TrioClock | None = None,
        limits: Limits | None = None,
        policy: Policy | None = None,
        provisioner: Provisioner | None = None,
        features: tuple[str, ...] = CLIENT_FEATURES,
    ) -> AsyncGenerator[Self]:
        """Run a runtime for the length of the block; its client resumes that of the life before."""
        store = store or DurableStore()
        if clock is None:
            clock = TrioClock() if before is None else before.clock
        runtime = make_runtime(
            agents,
            store=store,
            clock=clock,
            limits=limits,
            policy=policy,
            provisioner=provisioner,
        )
        async with runtime, open_peers(runtime) as peers:
            if before is not None:
                peers.recorder = before._recorder
            peer = await peers.connect()
            resume = None if before is None else before.peer.resume_from()
            await peer.hello(features=features, resume=resume)
            yield cls(runtime, store, peer, peers.recorder, clock, peers.connect)

    async def until_told(self, job_id: str, text: str) -> None:
        """Wait until the client was told this of a job."""
        with trio.fail_after(10_000):
            while text not in self.told(job_id):
                await self.peer.receive()

    async def another(self, resume: Frame | None = None) -> Peer:
        """Return another client, with a session of its own, or one that it resumes."""
        peer = await self._connect()
        await peer.hello(features=ALL_FEATURES, resume=resume)
        return peer

    async def rest(self) -> list[Frame]:
        """Return all frames until the connection's end."""
        frames: list[Frame] = []
        with suppress(TransportClosed):
            while True:
                frames.append(await self.peer.receive())
        return frames

    async def until_quiet(self) -> None:
        """Read everything that the client is sent for now."""
        while True:
            with trio.move_on_after(0.5) as waiting:
                await self.peer.receive()
            if waiting.cancelled_caught:
                return

    def told(self, job_id: str) -> list[str]:
        """Return what the client was told of a job, in short: kinds, and what they say."""
        payloads = [frame["payload"] for frame in self.events(job_id)]
        return [in_short(payload["kind"], payload["body"]) for payload in payloads]

    def events(self, job_id: str) -> list[Frame]:
        """Return the events of a job that the client was told of, in order."""
        return self._recorder.events(job_id)


def result(frame: Frame) -> object:
    """Return the result of a terminal."""
    assert frame["type"] in TERMINAL
    return frame["payload"].get("result", frame["payload"].get("code"))
