"""Sessions that move at random, under jobs that emit at several nodes."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
import trio
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from arcp_trio.testing import Peer
from arcp_trio.testing.frames import TERMINAL
from tests.cluster.counting import counting_nodes
from tests.cluster.side_by_side import NodeHere
from tests.postgres import fresh_database

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

NODES = 3
LINES = 120


@attrs.frozen
class Move:
    """A resume, and what comes before it."""

    node: int
    """The node at which the session is resumed."""
    frames: int
    """How many frames the client receives before."""
    drops: bool
    """It drops its connection before."""
    submits: bool
    """It submits another job before."""


moves = st.builds(
    Move,
    st.integers(0, NODES - 1),
    st.integers(0, 12),
    st.booleans(),
    st.sampled_from([True, False]),
)


class Traveller:
    """A client that goes from node to node, and notes what it hears of each job."""

    def __init__(self) -> None:
        self.jobs: set[str] = set()
        self.asked = 0
        self._heard: dict[str, list[int]] = {}
        self._ended: set[str] = set()

    async def receive(self, peer: Peer) -> None:
        """Receive a frame, and check that it comes next of its job."""
        frame = await peer.receive()
        job_id, payload = frame.get("job_id", ""), frame["payload"]
        if frame["type"] in ("job.accepted", "job.subscribed"):
            self.jobs.add(job_id)
        elif frame["type"] == "job.event" and payload["kind"] == "log":
            heard = self._heard.setdefault(job_id, [])
            heard.append(int(payload["body"]["message"]))
            assert heard == list(range(len(heard))), f"{job_id}: {heard[-3:]}"
        elif frame["type"] in TERMINAL:
            assert payload["result"] == LINES == len(self._heard[job_id])
            self._ended.add(job_id)

    async def submit(self, peer: Peer) -> None:
        """Submit a job that counts."""
        self.asked += 1
        key = f"key {self.asked}"
        asked = {"agent": "count", "input": [LINES, 0.004], "idempotency_key": key}
        await peer.send("job.submit", asked)

    @property
    def is_done(self) -> bool:
        """Whether every job that is known has come to its end."""
        return self.jobs == self._ended


async def travel(
    traveller: Traveller, peer: Peer, nodes: Sequence[NodeHere], route: Sequence[Move]
) -> None:
    """Go from node to node, until all jobs have ended, and hear everything of them once."""
    for move in route:
        for _ in range(move.frames):
            if not traveller.is_done:
                await traveller.receive(peer)
        if move.submits:
            await traveller.submit(peer)
        if move.drops:
            await peer.drop()
        peer = await nodes[move.node].welcomed(resume=peer.resume_from())
    while not traveller.is_done:
        await traveller.receive(peer)


async def follow(nodes: Sequence[NodeHere], job_id: str, route: Sequence[Move]) -> None:
    """Subscribe to a job, and go the other way round."""
    traveller, peer = Traveller(), await nodes[-1].welcomed()
    await peer.send("job.subscribe", {"job_id": job_id, "history": True})
    while not traveller.jobs:
        await traveller.receive(peer)
    back = [attrs.evolve(move, submits=False) for move in reversed(route)]
    await travel(traveller, peer, nodes, back)


def run(route: Sequence[Move]) -> None:
    """Go that way, over an empty database."""

    async def main(database: str) -> None:
        async with counting_nodes(database, NODES) as nodes, trio.open_nursery() as nursery:
            traveller, peer = Traveller(), await nodes[0].welcomed()
            await traveller.submit(peer)
            while not traveller.jobs:
                await traveller.receive(peer)
            (job_id,) = traveller.jobs
            nursery.start_soon(follow, nodes, job_id, route)
            await travel(traveller, peer, nodes, route)

    with fresh_database() as database:
        trio.run(main, database)


@settings(max_examples=4, phases=[Phase.generate])
@given(route=st.lists(moves, min_size=4, max_size=12))
def test_a_session_moves_at_random(route: list[Move]) -> None:
    """Wherever a client goes, and however it leaves, it hears each job whole and in order."""
    run(route)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@settings(max_examples=150, phases=[Phase.generate])
@given(route=st.lists(moves, min_size=8, max_size=30))
def test_a_session_moves_at_random_for_long(route: list[Move]) -> None:
    """The same, for minutes."""
    run(route)
