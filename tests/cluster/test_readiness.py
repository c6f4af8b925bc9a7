"""A node that is cut off from the database says so, before anybody takes it for dead."""

from __future__ import annotations

import pytest
import trio

from arcp_trio import Limits, Runtime
from arcp_trio.nurseries import tasks_beside
from arcp_trio.store.postgres.administering import make_schema
from tests.cluster.line import DatabaseLine
from tests.cluster.side_by_side import runtime_over

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

QUICK = Limits(node_seconds=2)


async def until(runtime: Runtime, reason: str | None) -> None:
    """Wait until that is why the node is not ready."""
    while runtime.ready() != reason:  # noqa: ASYNC110 - a beat tells nobody
        await trio.sleep(0.05)


async def test_a_balancer_is_told(database: str) -> None:
    """Without the line, clients are to go elsewhere; with it, the node goes on."""
    await trio.to_thread.run_sync(make_schema, database, None)
    line = DatabaseLine(database)
    with trio.fail_after(100):
        async with tasks_beside() as nursery:
            await nursery.start(line.run)
            runtime, _ = runtime_over(line.url, "a", limits=QUICK)
            async with runtime:
                await until(runtime, None)
                line.shut()
                await until(runtime, "the database does not answer")
                line.open()
                await until(runtime, None)
