"""Runtimes over a given store, and a store that can fail."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from arcp_trio import Agents, JobContext, Json, MemoryStore
from arcp_trio.store.errors import StoreError
from arcp_trio.store.writes import Write


class FailingStore(MemoryStore):
    """A store that cannot be written while it is `broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False
        self.error = StoreError

    async def _commit(self, writes: Sequence[Write]) -> None:
        if self.broken:
            await trio.lowlevel.checkpoint()
            raise self.error("no space left on device")
        await super()._commit(writes)


agents = Agents()


@agents.agent("ticker")
async def ticker(job: JobContext) -> Json:
    """Log `n` lines, one a second."""
    n: int = job.input["n"]
    for count in range(n):
        await job.log(f"tick {count}")
        await trio.sleep(1)
    return n


@agents.agent("stayer")
async def stayer(job: JobContext) -> Json:
    """Log a line, and stay for an hour."""
    await job.log("here")
    await trio.sleep(3600)
    return None
