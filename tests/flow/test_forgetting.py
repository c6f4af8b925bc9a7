"""Jobs that leave listings at their end, as a measurement's do."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Client, InvalidRequest, JobContext, JobNotFound
from arcp_trio.testing import open_pair
from tests.stage import make_runtime

SECONDS = 30.0
"""More than it takes until such a job is forgotten."""


async def listed(client: Client) -> list[str]:
    """Return the ids of the jobs that are listed."""
    return [info.id async for info in client.jobs()]


async def test_a_job_is_forgotten_after_its_end(autojump_clock: MockClock) -> None:
    """A job is listed while it runs, and not after its end; soon it is gone. Another one stays."""
    runtime = make_runtime()
    async with runtime, open_pair(runtime) as client:
        stays = await client.submit("echo", 1)
        goes = await client.submit("echo", 2, forget=True)
        runs = await client.submit("sleeper", forget=True)
        assert (await stays.result(), await goes.result()) == (1, 2)
        await wait_all_tasks_blocked()
        assert await listed(client) == [runs.id, stays.id]
        assert (await client.subscribe(goes.id)).status == "success", "it is there for a while"
        await trio.sleep(SECONDS)
        assert await listed(client) == [runs.id, stays.id]
        with pytest.raises(JobNotFound):
            await client.subscribe(goes.id)
        await runs.cancel()
        await trio.sleep(SECONDS)
        assert await listed(client) == [stays.id]


async def test_what_was_spent_stays_on_record(autojump_clock: MockClock) -> None:
    """A job that has reported a cost stays, although it had no lease and asked to be forgotten."""
    runtime = make_runtime()

    @runtime.agent("measured")
    async def measured(job: JobContext) -> None:
        """Report what the input says."""
        await job.metric("cost.search", job.input, unit="USD")

    async with runtime, open_pair(runtime) as client:
        spends = await client.submit("measured", 0.5, forget=True)
        costs_nothing = await client.submit("measured", 0, forget=True)
        await spends.result()
        await costs_nothing.result()
        await trio.sleep(SECONDS)
        assert await listed(client) == [spends.id]


async def test_what_a_lease_allowed_stays_on_record() -> None:
    """A job with a lease cannot ask to be forgotten."""
    runtime = make_runtime()
    async with runtime, open_pair(runtime) as client:
        with pytest.raises(InvalidRequest, match="forget is for jobs without a lease"):
            await client.submit("echo", budget={"USD": 1}, forget=True)
        assert await listed(client) == []
