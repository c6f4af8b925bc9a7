"""Jobs that are accepted while the session they belong to goes from node to node."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from arcp_trio.testing.frames import Frame
from tests.cluster.side_by_side import nodes_over

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 120
MOVES = 5
CHILDREN = 20
MAY_DELEGATE = {"agent.delegate": ["*"]}


async def test_children_of_a_session_that_moves(database: str) -> None:
    """Each child is promised once and ends, at whichever node its client is by then."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database) as nodes:
            peer = await nodes[0].welcomed()
            job = await peer.submit("parent", CHILDREN, lease_request=MAY_DELEGATE)
            frames = list[Frame]()
            for move in range(MOVES):
                for _ in range(CHILDREN // MOVES):
                    nodes[0].may_delegate.release()
                for _ in range(move):  # so that it leaves at another moment each time
                    frames.append(await peer.receive())
                resume = peer.resume_from()
                await peer.drop()
                peer = await nodes[(move + 1) % 2].welcomed(resume=resume)
                frames += peer.seen
            while not any(frame["job_id"] == job["job_id"] for frame in ends(frames)):
                frames.append(await peer.receive())
            # A promise may come again after a resume; a terminal has its number, and comes once.
            accepted = {
                frame["payload"]["job_id"] for frame in frames if frame["type"] == "job.accepted"
            }
            assert len(accepted - {job["job_id"]}) == CHILDREN
            assert sorted(frame["job_id"] for frame in ends(frames)) == sorted(
                accepted | {job["job_id"]}
            )


def ends(frames: Sequence[Frame]) -> list[Frame]:
    """Return the terminals among some frames."""
    return [frame for frame in frames if frame["type"] == "job.result"]
