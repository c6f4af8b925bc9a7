"""What a client can do with a job of which it has only the id, and how a job's end reads."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from arcp_trio import JobCancelled, JobFailed, JobNotFound, connect
from tests.client.support import TOKEN, Network, real_runtime


async def test_a_job_left_behind_can_be_cancelled_from_a_later_session(
    autojump_clock: MockClock,
) -> None:
    """Once the session that submitted it is closed, another one's word ends it (§7.4)."""
    async with real_runtime() as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN) as first:
            job_id = (await first.submit("stuck")).id
        async with connect(network.open, token=TOKEN) as second:
            with pytest.raises(JobNotFound):
                await second.cancel("job_that_never_was")
            observed = await second.subscribe(job_id, history=True)
            await second.cancel(job_id, "enough")
            with pytest.raises(JobCancelled):
                await observed.result()


async def test_the_terminal_as_it_stands_on_the_wire(autojump_clock: MockClock) -> None:
    """A handle has the payload of the last message, with its type, whichever way the job ended."""
    async with real_runtime() as runtime, connect(Network(runtime).open, token=TOKEN) as client:
        job = await client.submit("paced", 3)
        before = job.terminal
        assert before is None
        await job.result()
        assert job.terminal is not None
        assert job.terminal.pop("completed_at")
        assert job.terminal["type"] == "job.result"
        assert (job.terminal["final_status"], job.terminal["result"]) == ("success", {"n": 3})

        job = await client.submit("failing")
        with pytest.raises(JobFailed):
            await job.result()
        assert job.terminal is not None
        assert job.terminal["type"] == "job.error"
        assert (job.terminal["code"], job.terminal["details"]) == ("INTERNAL_ERROR", {"tries": 3})
