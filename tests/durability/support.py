"""Runtimes over a store that outlives them, and a store that can fail."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from arcp_trio import JobContext, Json, MemoryStore, Runtime, StaticTokens
from arcp_trio.store.errors import StoreError
from arcp_trio.store.interface import Store
from arcp_trio.store.writes import Write
from arcp_trio.testing import TrioClock
from arcp_trio.testing.peer import TEST_TOKEN


class FailingStore(MemoryStore):
    """Cannot be written while `broken`; takes everything up again after."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False

    async def _commit(self, writes: Sequence[Write]) -> None:
        if self.broken:
            await trio.lowlevel.checkpoint()
            raise StoreError("no space left on device")
        await super()._commit(writes)


def new_runtime(store: Store) -> Runtime:
    """A runtime over this store, with agents that tick and that stay."""
    runtime = Runtime(
        auth=StaticTokens({TEST_TOKEN: "tester"}),
        store=store,
        clock=TrioClock(),
    )

    @runtime.agent("ticker")
    async def ticker(job: JobContext) -> Json:
        """Log `n` lines, one a second."""
        n: int = job.input["n"]
        for count in range(n):
            await job.log(f"tick {count}")
            await trio.sleep(1)
        return n

    @runtime.agent("stayer")
    async def stayer(job: JobContext) -> Json:
        """Log a line, and stay for an hour."""
        await job.log("here")
        await trio.sleep(3600)
        return None

    return runtime
