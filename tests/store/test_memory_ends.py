"""What the end of a job costs the store in memory, however many jobs have ended before."""

from __future__ import annotations

from arcp_trio import MemoryStore
from arcp_trio.store.memos import Durability
from arcp_trio.store.records import Entry, Status
from arcp_trio.store.writes import AcceptJob, FinishJob
from tests.store.engines import job_row, running

DURABILITY = Durability(
    input=b"{}", max_runtime=None, sends_chunks=False, wants_credentials=False, forget=False
)
ENDED = 1_000
LATE = 10


class CountedTime(float):
    """A time that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        CountedTime.compared += 1
        return super().__lt__(other)

    def __gt__(self, other: float) -> bool:
        CountedTime.compared += 1
        return super().__gt__(other)


def end(job_id: str, at: float) -> FinishJob:
    """Return the end of a job."""
    entry = Entry(0, int(at * 1_000), b"end", terminal=True)
    return FinishJob(job_id, Status.SUCCESS, CountedTime(at), entry)


async def test_an_end_that_comes_late_looks_at_few_others() -> None:
    """Children that a durable parent has kept take their places among many that ended since."""
    async with running(MemoryStore()) as store:
        store.put(AcceptJob(job_row("J"), None, durability=DURABILITY))
        for number in range(LATE):
            store.put(AcceptJob(job_row(f"C{number}"), None, "J", kept=True))
            store.put(end(f"C{number}", 1 + number))
        for number in range(ENDED):
            store.put(AcceptJob(job_row(f"E{number}"), None))
            store.put(end(f"E{number}", 100 + number))
        await store.flushed()
        CountedTime.compared = 0
        await store.put(end("J", 2_000)).committed()
        assert CountedTime.compared < LATE * 20
