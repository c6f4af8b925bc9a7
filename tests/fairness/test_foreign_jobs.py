"""A job of somebody else costs the runtime what a job costs that there is not."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from arcp_trio import MemoryStore
from arcp_trio.store.records import JobRow
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.stage import BOB, Stage, simple_agents

ASK: dict[str, Frame] = {
    "job.cancel": {},
    "x-vendor.arcp-trio.stop": {},
    "x-vendor.arcp-trio.answer": {"question_id": "call_none", "answer": 1},
    "job.subscribe": {"history": True},
}


class WatchedStore(MemoryStore):
    """A store that notes what is looked up of jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[str] = []

    async def owner(self, job_id: str) -> str | None:
        """Note it, and return the principal of a job."""
        self.looks.append("owner")
        return await super().owner(job_id)

    async def job(self, job_id: str) -> JobRow | None:
        """Note it, and return a job."""
        self.looks.append("job")
        return await super().job(job_id)

    async def index_after(self, job_id: str, seq: int) -> int | None:
        """Note it, and return an index."""
        self.looks.append("index")
        return await super().index_after(job_id, seq)


@pytest.mark.parametrize("kind", ASK)
async def test_a_foreign_job_takes_the_work_of_none(kind: str, autojump_clock: MockClock) -> None:
    """A job of bob's that runs, one that has ended, and no job lead to the same look-ups."""
    store = WatchedStore()
    async with Stage.open(store) as stage:
        stage.runtime.add(simple_agents)
        alice = await stage.welcomed(features=CLIENT_FEATURES)
        bob = await stage.welcomed(token=BOB)
        running = (await bob.submit("sleeper"))["job_id"]
        ended = (await bob.submit("echo", "x" * 10_000))["job_id"]
        await bob.until_terminal(ended)
        looks: list[list[str]] = []
        for job_id in (running, ended, f"{running[:-4]}0000", "job_none"):
            store.looks.clear()
            request = await alice.send(kind, {"job_id": job_id, **ASK[kind]})
            error = await alice.expect("session.error", request_id=request)
            assert error["payload"]["code"] == "JOB_NOT_FOUND"
            looks.append([*store.looks])
        assert looks == [["owner"]] * 4
