"""A cluster with clients at work, which is looked through at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from arcp_trio.nurseries import tasks_beside
from arcp_trio.store.postgres.administering import make_schema
from tests.cluster.audit import audit
from tests.cluster.client import PATIENCE_SECONDS, Client
from tests.cluster.nodes import NODE_SECONDS, SERVE, Cluster, Node, cluster_over

TEST_SECONDS: Final = 110.0


@attrs.define(eq=False)
class Stage:
    """Nodes, and clients that come and go between them."""

    cluster: Cluster
    nursery: trio.Nursery

    async def client(
        self,
        at: Node | None = None,
        principal: str = "alice",
        patience: float = PATIENCE_SECONDS,
    ) -> Client:
        """Have a client attached, to a given node to begin with; later it takes what comes."""
        ports = None if at is None else [at.port]
        with self.cluster.balancer.only(ports):
            client = Client(self.cluster.balancer, principal, patience)
            self.nursery.start_soon(client.run)
            await client.attached()
        return client

    def others(self, node: Node) -> list[Node]:
        """Return all nodes but one."""
        return [other for other in self.cluster.nodes if other is not node]


@asynccontextmanager
async def staged(
    database: str,
    folder: Path,
    *,
    nodes: int = 3,
    node_seconds: float = NODE_SECONDS,
    drain: float = 1,
    seconds: float = TEST_SECONDS,
    program: Sequence[str] = SERVE,
) -> AsyncGenerator[Stage]:
    """Run a cluster with clients, for the time that a test may take, and audit the database."""
    await trio.to_thread.run_sync(make_schema, database, None)
    with trio.fail_after(seconds):
        async with cluster_over(
            database, folder, nodes=nodes, node_seconds=node_seconds, drain=drain, program=program
        ) as cluster:
            async with tasks_beside() as nursery:
                yield Stage(cluster, nursery)
            await trio.to_thread.run_sync(audit, cluster.database)
