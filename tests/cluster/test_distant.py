"""Nodes far away from their database: what takes many round trips ends all the same."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import pytest
import trio

from arcp_trio import InternalError, Limits
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.testing import Peer, WireRecorder
from arcp_trio.testing.frames import Frame
from tests.cluster.agents import agents
from tests.cluster.audit import audit
from tests.cluster.counting import counted, read
from tests.cluster.line import DatabaseLine
from tests.cluster.side_by_side import NodeHere, clients_of, runtime_over
from tests.inside import awake_sessions

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

DELAY: Final = 0.05
"""Seconds to the database. To take an awake session of another node takes some 20 round trips."""
LIMITS: Final = Limits(handshake_seconds=1, node_seconds=30)
"""A connection has time for ten round trips."""
ATTEMPTS: Final = 5


@asynccontextmanager
async def nodes_behind_lines(
    database: str,
) -> AsyncGenerator[tuple[list[NodeHere], list[DatabaseLine]]]:
    """Provide two nodes, and the lines between them and their database."""
    await trio.to_thread.run_sync(make_schema, database, None)
    recorder, lines = WireRecorder(), [DatabaseLine(database), DatabaseLine(database)]
    async with trio.open_nursery() as nursery:
        for line in lines:
            await nursery.start(line.run)
        async with AsyncExitStack() as stack:
            nodes: list[NodeHere] = []
            for place, line in enumerate(lines):
                runtime, store = runtime_over(line.url, f"n{place}", agents, limits=LIMITS)
                await stack.enter_async_context(runtime)
                nodes.append(await stack.enter_async_context(clients_of(runtime, store, recorder)))
            yield nodes, lines
            for line in lines:
                line.delay = 0
        nursery.cancel_scope.cancel()
    await trio.to_thread.run_sync(audit, database)


async def resumed(node: NodeHere, peer: Peer) -> tuple[Peer, int]:
    """Resume a session at a node; return the client, and how many attempts were cut off."""
    for cut_off in range(ATTEMPTS):
        try:
            return await node.welcomed(resume=peer.resume_from()), cut_off
        except InternalError:
            pass
    raise AssertionError(f"not resumed in {ATTEMPTS} attempts")


async def test_a_resume_goes_on_where_the_last_attempt_was_cut_off(database: str) -> None:
    """A session moves although no connection lives as long as the move takes."""
    async with nodes_behind_lines(database) as ((here, there), lines):
        peer = await here.welcomed()
        job = (await peer.submit("count", [40, 0.005]))["job_id"]
        seen: list[Frame] = await read(peer, job, 10)
        for line in lines:
            line.delay = DELAY
        again, cut_off = await resumed(there, peer)
        assert cut_off, "one connection was enough: the test shows nothing"
        seen += await read(again, job)
        assert counted(seen, job) == list(range(40))
        assert not awake_sessions(here.runtime)
