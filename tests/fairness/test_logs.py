"""What one principal puts into the logs of its sessions is bounded in bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, Limits, MemoryStore, ResumeWindowExpired
from arcp_trio.store.records import Inline, Mark
from arcp_trio.testing import Peer
from tests.flow.observing import subscribe
from tests.stage import BOB, Stage, simple_agents

KB: Final = 1_000
BOUND: Final = 2_000 * KB
WIDE_LEASE: Final = {"tool.call": [f"{number:03}{'x' * 400}" for number in range(150)]}
"""A lease of nearly the most bytes that it may have; it is in each `job.subscribed`."""


class World(Stage[MemoryStore]):
    """A stage with a job of a wide lease, which says something when its test wants it."""

    @classmethod
    @asynccontextmanager
    async def begin(cls) -> AsyncGenerator[World]:
        """Run a world whose sessions keep two megabytes for a resume."""
        async with cls.open(MemoryStore(), limits=Limits(log_bytes=BOUND)) as world:
            world.runtime.add(simple_agents)
            yield world

    async def wide_job(self) -> tuple[str, trio.MemorySendChannel[str]]:
        """Submit a job with a wide lease; return its id, and what makes it log a line."""
        send, receive = trio.open_memory_channel[str](0)

        @self.runtime.agent("wide")
        async def wide(job: JobContext) -> None:
            """Log what the test says."""
            async for said in receive:
                await job.log(said)

        owner = await self.welcomed()
        return (await owner.submit("wide", lease_request=WIDE_LEASE))["job_id"], send

    async def resumed(self, peer: Peer, after: int) -> Peer:
        """Return a client that has resumed another's session after a number."""
        return await self.welcomed(resume=peer.resume_from() | {"last_event_seq": after})

    async def log_bytes(self, peer: Peer) -> int:
        """Return how many bytes a session's log has that are in no journal."""
        await self.store.flushed()
        assert peer.session_id is not None
        items = self.store._tables.sessions[peer.session_id].items
        return sum(len(item.tail) for item in items if isinstance(item, Mark | Inline))


async def subscribe_again(peer: Peer, job_id: str, count: int) -> None:
    """Subscribe to a job and unsubscribe, again and again."""
    for _ in range(count):
        await subscribe(peer, job_id)
        await peer.send("job.unsubscribe", {"job_id": job_id})
        peer.seen.clear()


async def test_promises_are_bounded_in_bytes(autojump_clock: MockClock) -> None:
    """Past `log_bytes` the oldest promises are given up, and a resume from before is refused."""
    async with World.begin() as world:
        job_id, _ = await world.wide_job()
        alice, bob = await world.welcomed(), await world.welcomed(token=BOB)
        await subscribe_again(alice, job_id, 20)
        assert await world.log_bytes(alice) > BOUND // 2
        await subscribe_again(alice, job_id, 300)
        assert await world.log_bytes(alice) <= BOUND
        job = await bob.submit("echo")
        await bob.until_terminal(job["job_id"])
        # What is gone followed the last number, so that no number is one to resume from.
        await alice.drop()
        with pytest.raises(ResumeWindowExpired):
            await world.resumed(alice, 0)


async def test_a_client_that_has_had_a_later_number_resumes(autojump_clock: MockClock) -> None:
    """After promises were given up, a session can be resumed from the next number on."""
    async with World.begin() as world:
        job_id, say = await world.wide_job()
        alice = await world.welcomed()
        await subscribe_again(alice, job_id, 300)
        await subscribe(alice, job_id)
        await say.send("later")
        event = await alice.expect("job.event")
        await alice.drop()
        with pytest.raises(ResumeWindowExpired):
            await world.resumed(alice, event["event_seq"] - 1)
        again = await world.resumed(alice, event["event_seq"])
        await say.send("still there")
        assert (await again.expect("job.event"))["event_seq"] == event["event_seq"] + 1


async def test_the_bound_lasts_beyond_a_park(autojump_clock: MockClock) -> None:
    """What a session's log has is remembered while the session is parked."""
    async with World.begin() as world:
        job_id, say = await world.wide_job()
        alice = await world.welcomed()
        for _ in range(12):
            await subscribe_again(alice, job_id, 10)
            await subscribe(alice, job_id)
            await say.send("now")
            seq = (await alice.expect("job.event"))["event_seq"]
            await alice.drop()
            await trio.sleep(1)
            alice = await world.resumed(alice, seq)
            await alice.send("job.unsubscribe", {"job_id": job_id})
            assert await world.log_bytes(alice) <= BOUND
