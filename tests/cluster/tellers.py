"""Two nodes with jobs that say what their test wants."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from arcp_trio import Agents, JobContext, Json, Limits
from arcp_trio.runtime.wake import Wake
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.cluster.audit import audit
from tests.cluster.side_by_side import NodeHere, nodes_over

SECONDS = 80
"""The bound on a test, for a machine that is busy with other things."""


QUIET = tuple(feature for feature in CLIENT_FEATURES if feature not in ("ack", "heartbeat"))
"""The features of a client that may be slow, and is neither warned nor lost for it."""


class Desk:
    """Has jobs log their next numbers when a test says so, and end."""

    def __init__(self) -> None:
        self.agents = Agents()
        self.agents.agent("teller")(self._tell)
        self.said: dict[str, int] = {}
        """By job, how many numbers it has logged."""
        self._orders: dict[str, trio.MemorySendChannel[int]] = {}
        self._news = Wake()

    async def _tell(self, job: JobContext) -> Json:
        """Log numbers as the test says, each followed by as many letters as the input says."""
        letters = "x" * int(job.input or 0)
        send, receive = trio.open_memory_channel[int](1_000)
        self._orders[job.id] = send
        self.said[job.id] = 0
        self._news.set()
        async for count in receive:
            for _ in range(count):
                await job.log(f"{self.said[job.id]}{letters}")
                self.said[job.id] += 1
                self._news.set()
        return self.said[job.id]

    async def say(self, job_id: str, count: int = 1) -> None:
        """Have a job log its next numbers."""
        while job_id not in self._orders:
            await self._news.wait()
        self._orders[job_id].send_nowait(count)

    async def has_said(self, job_id: str, count: int) -> None:
        """Wait until a job has logged `count` numbers."""
        while self.said.get(job_id, 0) < count:
            await self._news.wait()

    async def end(self, job_id: str) -> None:
        """Have a job end after what it was told to say."""
        await self.say(job_id, 0)
        self._orders.pop(job_id).close()


@asynccontextmanager
async def two_nodes(
    database: str,
    *,
    audited: bool = True,
    follow_seconds: float = 1,
    **limits: int,
) -> AsyncGenerator[tuple[Desk, NodeHere, NodeHere]]:
    """Run two nodes with tellers; check the database after the test, if `audited`."""
    desk = Desk()
    with trio.fail_after(SECONDS):
        chosen = Limits(follow_seconds=follow_seconds, **limits)
        async with nodes_over(database, others=[desk.agents], limits=chosen) as (one, two):
            yield desk, one, two
        if audited:
            await trio.to_thread.run_sync(audit, database)


async def quiet(node: NodeHere, *, resume: Frame | None = None) -> Peer:
    """Return a client that may be slow."""
    peer = await node.connect()
    await peer.hello(features=QUIET, resume=resume)
    return peer


async def submitted(node: NodeHere, letters: int = 0, **fields: Json) -> tuple[Peer, str]:
    """Return a client of a node that may be slow, and the teller that it has submitted there."""
    peer = await quiet(node)
    return peer, (await peer.submit("teller", letters, **fields))["job_id"]


async def moved(peer: Peer, node: NodeHere) -> Peer:
    """Drop a client's connection, and resume its session at another node."""
    await peer.drop()
    return await quiet(node, resume=peer.resume_from())


async def subscribed(peer: Peer, job_id: str, **fields: Json) -> Frame:
    """Subscribe to a job, and return the answer."""
    request = await peer.send("job.subscribe", {"job_id": job_id, **fields})
    return await peer.answer("job.subscribed", request)


def counted(count: int) -> list[str]:
    """Return what a teller says without letters."""
    return [str(number) for number in range(count)]
