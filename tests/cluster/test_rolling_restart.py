"""All nodes are replaced one after the other, while clients work."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import trio

from tests.cluster.chaos import Work
from tests.cluster.stage import staged

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]


async def test_no_client_sees_more_than_a_reconnect(database: str, tmp_path: Path) -> None:
    """Each node ends in order and comes back; all sessions go on, durable jobs included."""
    async with staged(database, tmp_path, drain=30) as stage:
        clients = [await stage.client(node) for node in stage.cluster.nodes for _ in range(2)]
        work = Work(clients, 1, may_lose=False)
        durable = await clients[0].submit("steps", 30, "through it all")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work.run)
            for node in stage.cluster.nodes:
                node.signal(signal.SIGTERM)
                assert await node.ended() == 0
                await node.start()
            work.over = True
        assert (await clients[0].end(durable))["result"] == sum(range(30))
        for client in clients:
            assert client.lost_sessions == 0
            assert client.resumes >= 1
            assert set(client.codes) == {1012}


async def test_a_node_that_ends_takes_nothing_over(database: str, tmp_path: Path) -> None:
    """A durable job of a node that dies while the last other one ends waits for the next start."""
    async with staged(database, tmp_path, nodes=2, drain=30) as stage:
        dying, ending = stage.cluster.nodes
        client, other = await stage.client(dying), await stage.client(ending)
        durable = await client.submit("steps", 10, "durable")
        job = await other.submit("count", [450, 0.01], "keeps the node up")
        await other.heard(job, 1)
        ending.signal(signal.SIGTERM)
        await dying.kill()
        assert await ending.ended() == 0
        await dying.start()
        assert (await client.end(durable))["result"] == sum(range(10))
        await other.counted(job, 450)
