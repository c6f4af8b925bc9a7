"""A process whose node is gone ends within five seconds, even if its loop is held."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from arcp_trio import connect
from arcp_trio.store.postgres.administering import make_schema
from tests.cluster.nodes import Node, cluster_over, token_of

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 20
"""Four times what is promised: the machine may be busy. The agents go on for a minute."""


@pytest.mark.parametrize("agent", ["hold", "stone"])
async def test_a_node_with_an_agent_that_does_not_stop(
    agent: str, database: str, tmp_path: Path
) -> None:
    """The process that has its name from then on waits for nothing, and it exits with code 6."""
    await trio.to_thread.run_sync(make_schema, database, None)
    with trio.fail_after(100):
        async with cluster_over(database, tmp_path, nodes=1, node_seconds=5) as cluster:
            older = cluster[0]
            newer = Node(older.name, tmp_path, older.line)
            url = f"ws://127.0.0.1:{older.port}/arcp"
            async with connect(url, token=token_of("alice")) as client:
                await client.submit(agent, 60)
            await trio.sleep(1.5)  # the agent is at it by then, or soon
            await newer.start()
            try:
                with trio.fail_after(SECONDS):
                    assert await older.ended() == 6
            finally:
                await newer.kill()  # noqa: ASYNC102 - it is bounded
