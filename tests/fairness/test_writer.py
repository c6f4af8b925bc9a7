"""However much one principal's jobs emit, another one's events are stored with the next group."""

from __future__ import annotations

from collections.abc import Sequence

import trio
from trio.testing import MockClock

from arcp_trio import JobContext, MemoryStore
from arcp_trio.store.queue import QUEUE_WRITES
from arcp_trio.store.writes import AppendJournal, Write
from tests.stage import BOB, Stage

COMMIT_SECONDS = 0.01
EVENTS = 12


class SteadyStore(MemoryStore):
    """A store that takes the same time for each group, and knows the largest one."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = 0
        self.most_events = 0

    async def _commit(self, writes: Sequence[Write]) -> None:
        self.groups += 1
        events = sum(isinstance(write, AppendJournal) for write in writes)
        self.most_events = max(self.most_events, events)
        await trio.sleep(COMMIT_SECONDS)
        await super()._commit(writes)


async def test_jobs_that_emit_without_end_hold_up_no_other(autojump_clock: MockClock) -> None:
    """A job that emits now and then does not wait for the room that others' emitters take."""
    waited: list[int] = []
    emitted: list[float] = []
    async with Stage.open(SteadyStore()) as stage:
        store = stage.store

        @stage.runtime.agent("flood")
        async def flood(job: JobContext) -> None:
            """Emit as fast as may be."""
            while True:
                await job.log("x" * 100)

        @stage.runtime.agent("steady")
        async def steady(job: JobContext) -> None:
            """Emit thirty events a second."""
            for _ in range(EVENTS):
                await trio.sleep(0.033)
                before = store.groups
                emitted.append(trio.current_time())
                await job.log("hello")
                waited.append(store.groups - before)

        alice, bob = await stage.welcomed(), await stage.welcomed(token=BOB)
        for _ in range(30):
            await alice.submit("flood")
        await alice.drop()
        job = await bob.submit("steady")
        for number in range(EVENTS):
            await bob.expect("job.event")
            # One group was being stored as it was emitted, and it was in the next one.
            assert trio.current_time() - emitted[number] <= 2 * COMMIT_SECONDS
        await bob.until_terminal(job["job_id"])
    assert max(waited) <= 1
    assert QUEUE_WRITES <= store.most_events < 2 * QUEUE_WRITES
