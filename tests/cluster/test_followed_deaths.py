"""Jobs that are watched from other nodes when their own node dies."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.testing import Peer
from tests.cluster.audit import audit
from tests.cluster.counting import counted
from tests.cluster.nodes import cluster_over, peer_at
from tests.cluster.tellers import QUIET, subscribed

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 85
STEPS = 30


async def heard(peer: Peer, job_id: str, lines: int) -> None:
    """Receive until a job has said so much."""
    while len(counted(peer.seen, job_id)) < lines:
        peer.seen.append(await peer.receive())


async def test_a_node_is_killed(database: str, tmp_path: Path) -> None:
    """A watcher at each other node has all that the job has said, then its one terminal.

    A durable job goes on at one of these nodes, and its watchers at both see the end of it.
    """
    await trio.to_thread.run_sync(make_schema, database, None)
    with trio.fail_after(SECONDS):
        async with (
            cluster_over(database, tmp_path, node_seconds=5) as cluster,
            peer_at(cluster[0], QUIET) as owner,
            peer_at(cluster[1], QUIET) as one,
            peer_at(cluster[2], QUIET) as two,
        ):
            counts = (await owner.submit("count", [100_000, 0.01]))["job_id"]
            steps = (await owner.submit("steps", STEPS))["job_id"]
            for watcher in (one, two):
                for job_id in (counts, steps):
                    await subscribed(watcher, job_id, history=True)
                await heard(watcher, counts, 10)
            await cluster[0].kill()
            for watcher in (one, two):
                end = await watcher.until_terminal(counts)
                assert end["type"] == "job.error"
                assert end["payload"]["code"] == "INTERNAL_ERROR"
                said = counted(watcher.seen, counts)
                assert said == list(range(len(said)))
                result = await watcher.until_terminal(steps)
                assert result["payload"]["result"] == sum(range(STEPS))
            assert counted(one.seen, counts) == counted(two.seen, counts)
        await trio.to_thread.run_sync(audit, database)
