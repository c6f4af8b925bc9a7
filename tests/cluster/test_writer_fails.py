"""A defect of the writer ends a node, as it ends a runtime that is alone."""

from __future__ import annotations

import psycopg
import pytest
import trio

from arcp_trio import Limits
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.testing import WireRecorder
from tests.cluster.side_by_side import clients_of, runtime_over

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 60.0
OFTEN = Limits(node_seconds=1, cancel_grace_seconds=1)
"""Other tasks read all the time."""


@pytest.mark.logs_error("store writer failed")
async def test_the_error_leaves_the_block(database: str) -> None:
    """The writer's error is raised, although other tasks of the node use the database."""
    await trio.to_thread.run_sync(make_schema, database, None)
    runtime, store = runtime_over(database, "n0", limits=OFTEN)

    async def be_a_node() -> None:
        async with runtime, clients_of(runtime, store, WireRecorder()) as node:
            client = await node.welcomed()
            with psycopg.connect(database, autocommit=True) as db:
                db.execute("ALTER TABLE arcp.watch DROP CONSTRAINT watch_pkey")
            await client.send("job.submit", {"agent": "sleeper"})
            await trio.sleep_forever()

    with trio.fail_after(SECONDS), pytest.raises(psycopg.errors.InvalidColumnReference):
        await be_a_node()
