"""Agents that harm their own worker process harm no other job. In real time."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import trio

from arcp_trio.testing import Peer
from arcp_trio.wire.json import Json
from tests.jobs import outside
from tests.processes import gone
from tests.workers.support import end_of, run

LEASE: Json = {"agent.delegate": ["*"]}


async def test_a_worker_without_descriptors_goes_on(single: Peer, tmp_path: Path) -> None:
    """A file for which there is no descriptor is refused as it is elsewhere, and the next opens."""
    path = tmp_path / "a.txt"
    path.write_text("written")
    with trio.fail_after(20):
        end = await run(
            single, "without-descriptors", str(path), lease_request=outside.lease(tmp_path)
        )
        assert end.get("result") == [errno.EMFILE, "written"], end
        assert (await run(single, "about"))["final_status"] == "success"


@pytest.mark.logs_error("worker lost")
async def test_a_worker_without_memory_ends(single: Peer) -> None:
    """A worker that cannot read its answers ends, with its job, and another takes its place."""
    with trio.fail_after(20):
        end = await run(single, "without-memory", lease_request=LEASE)
        assert end.get("message") == "the agent's process ended", end
        assert (await run(single, "about"))["final_status"] == "success"


@pytest.mark.logs_error("worker lost")
async def test_a_worker_whose_child_lives_on_has_ended(single: Peer) -> None:
    """A worker that dies ends its job, although a process that it has forked has its socket."""
    with trio.fail_after(20):
        job = await single.submit("orphaning")
        event = await single.expect("job.event")
        processes = [int(pid) for pid in event["payload"]["body"]["message"].split()]
        assert (await end_of(single, job)).get("message") == "the agent's process ended"
        await gone(processes)
        assert (await run(single, "about"))["final_status"] == "success"


async def test_a_job_ends_though_its_worker_reads_no_answers(single: Peer) -> None:
    """What an agent returned is the job's end, and a worker that does not read is replaced."""
    with trio.fail_after(20):
        assert (await run(single, "without-ears"))["result"] == "done"
        assert (await run(single, "about"))["final_status"] == "success"
