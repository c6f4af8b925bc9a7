"""A node that stands still for a while: its sessions go elsewhere, and its jobs go on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import trio

from arcp_trio.nurseries import tasks_beside
from arcp_trio.store.postgres.administering import make_schema
from tests.cluster.audit import audit
from tests.cluster.client import Client
from tests.cluster.nodes import cluster_over

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

LINES = 400


async def test_a_node_that_stands_still_for_less_than_its_time(
    database: str, tmp_path: Path
) -> None:
    """Its client resumes elsewhere at once; the job goes on with the node, and loses nothing."""
    await trio.to_thread.run_sync(make_schema, database, None)
    with trio.fail_after(100):
        async with cluster_over(database, tmp_path, nodes=2, node_seconds=60) as cluster:
            first, second = cluster.nodes
            client = Client(cluster.balancer)
            with cluster.balancer.only([first.port]):
                async with tasks_beside() as nursery:
                    nursery.start_soon(client.run)
                    job = await client.submit("count", [LINES, 0.01], "k")
                    await client.heard(job, 20)
                    first.signal(signal.SIGSTOP)
                    with cluster.balancer.only([second.port]):
                        await cluster.balancer.cut(first.port)
                        await client.until("resume", lambda: client.resumes)
                        heard = client.said(job)
                        first.signal(signal.SIGCONT)
                        assert heard < LINES
                        await client.counted(job, LINES)
            assert client.lost_sessions == 0
            assert "how=stolen" in second.log
            assert first.running
        await trio.to_thread.run_sync(audit, database)
