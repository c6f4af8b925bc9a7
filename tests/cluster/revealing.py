"""Two nodes, a job with credentials at one of them, and whatever the database is ever given."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import pytest
import trio

from arcp_trio import Agents, JobContext, Json, Limits, Policy
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.testing import WireRecorder
from tests.cluster.keeping import check_secrecy, keep_everything, kept
from tests.cluster.side_by_side import LIMITS, NodeHere, clients_of, runtime_over
from tests.credentials.upstream import Upstream

SECONDS: Final = 60


class Stage:
    """The nodes, of which both run `rotator`, and where the credentials come from."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.upstream = Upstream()
        self.agents = Agents()
        self.agents.agent("rotator")(self._rotate)
        self.may_rotate = trio.Event()
        self.here: NodeHere
        self.there: NodeHere

    async def _rotate(self, job: JobContext) -> Json:
        """Log a line before and after a rotation, then sleep."""
        await job.log("before")
        await self.may_rotate.wait()
        await job.rotate(job.credentials[0].id)
        await job.log("after")
        await trio.sleep_forever()

    def commands(self) -> list[dict[str, str]]:
        """Return the commands to reveal something, each as it was asked and as it was answered."""
        return [row for row in kept(self.database, "command") if row["kind"] == "reveal"]

    def check_secrecy(self) -> None:
        """Check that no row has ever had a value."""
        values = [key.value for key in self.upstream.keys.values()]
        check_secrecy(self.database, *values, found="before")


def without_cryptography(patch: pytest.MonkeyPatch) -> None:
    """Have `cryptography` not be installed, for whatever is imported from now on."""
    ours = [f"arcp_trio.runtime.cluster.{name}" for name in ("revealing", "sealing")]
    for name in [*sys.modules, "cryptography"]:
        if name.partition(".")[0] == "cryptography":
            patch.setitem(sys.modules, name, None)
        elif name in ours:
            patch.delitem(sys.modules, name)


@asynccontextmanager
async def revealing_nodes(
    database: str,
    *,
    lacking: tuple[str, ...] = (),
    policy: Policy | None = None,
    limits: Limits = LIMITS,
) -> AsyncGenerator[Stage]:
    """Run two nodes for the time of a test; those in `lacking` are without `cryptography`."""
    stage, recorder = Stage(database), WireRecorder()
    await trio.to_thread.run_sync(make_schema, database, None)
    await trio.to_thread.run_sync(keep_everything, database)
    runtimes = [
        runtime_over(
            database, name, stage.agents, policy=policy, limits=limits, provisioner=stage.upstream
        )
        for name in ("here", "there")
    ]
    (first, first_store), (second, second_store) = runtimes
    with trio.fail_after(SECONDS), pytest.MonkeyPatch.context() as patch:
        if "here" in lacking:
            without_cryptography(patch)
        async with first, clients_of(first, first_store, recorder) as stage.here:
            patch.undo()
            if "there" in lacking:
                without_cryptography(patch)
            async with second, clients_of(second, second_store, recorder) as stage.there:
                patch.undo()
                yield stage
