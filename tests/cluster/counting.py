"""Nodes in one process whose jobs count, and what their clients have heard."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

import trio

from arcp_trio import Limits
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import TERMINAL, Frame
from tests.cluster.agents import agents
from tests.cluster.audit import audit
from tests.cluster.side_by_side import NodeHere, nodes_over

SECONDS = 60
"""Within which every test ends by far."""


@asynccontextmanager
async def counting_nodes(
    database: str, count: int = 2, **limits: float
) -> AsyncGenerator[list[NodeHere]]:
    """Run some nodes whose agents count; check the database after the test."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database, count, limits=Limits(**limits)) as found:  # type: ignore[arg-type]
            for node in found:
                node.runtime.add(agents)
            yield found
        await trio.to_thread.run_sync(audit, database)


def counted(frames: Iterable[Frame], job_id: str) -> list[int]:
    """Return what a job has said, in the order in which it came."""
    return [
        int(frame["payload"]["body"]["message"])
        for frame in frames
        if frame["type"] == "job.event" and frame["job_id"] == job_id
    ]


async def read(peer: Peer, job_id: str, lines: int | None = None) -> list[Frame]:
    """Receive this many events of a job, or all up to its terminal."""
    frames: list[Frame] = []
    while lines is None or len(counted(frames, job_id)) < lines:
        frames.append(await peer.receive())
        if frames[-1]["type"] in TERMINAL and frames[-1]["job_id"] == job_id:
            break
    return frames
