"""Steps of durable jobs: a step that is done is never done again."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from arcp_trio import Agents, JobContext, Json
from tests.durable.stage import Life, result


async def test_a_job_goes_on_after_a_kill(autojump_clock: MockClock) -> None:
    """A job that was killed behind a step is called again, finds the result and goes on."""
    agents, calls = Agents(), list[str]()

    async def fetch(what: str) -> Json:
        calls.append(what)
        return {"page": what}

    @agents.agent("report", durable=True)
    async def report(job: JobContext) -> Json:
        await job.log("begin")
        page = await job.step("fetch", fetch, job.input)
        await job.log("fetched")
        await trio.sleep(10)
        await job.log("slept")
        return [page, job.run]

    async with Life.begin(agents) as first:
        job_id = (await first.peer.submit("report", "a"))["job_id"]
        await first.until_told(job_id, "fetched")
        left = first.killed()
    async with Life.begin(agents, left, before=first) as second:
        end = await second.peer.until_terminal(job_id)
        assert result(end) == [{"page": "a"}, 2]
        assert second.told(job_id) == ["begin", "fetched", "resumed 2", "slept"]
    assert calls == ["a"]
