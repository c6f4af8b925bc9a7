"""Idle workers that stand still or have ended get no job. In real time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio

from arcp_trio import Limits
from arcp_trio.runtime.workers import processes
from arcp_trio.testing import Peer
from tests.processes import gone, stopped
from tests.workers.support import end_of, open_with_workers, run

LONG = 20
"""Seconds after which nothing more is waited for."""


async def worker_of(peer: Peer) -> int:
    """Return the process that does a job."""
    return int((await run(peer, "about"))["result"]["pid"])


async def test_a_worker_that_was_stopped_gets_no_job(single: Peer) -> None:
    """The next job has another worker, and the one that stands still is ended."""
    still = await worker_of(single)
    os.kill(still, signal.SIGSTOP)
    await stopped(still)
    with trio.fail_after(LONG):
        assert await worker_of(single) != still
        await gone([still])


async def test_a_worker_whose_threads_cannot_run_gets_no_job(single: Peer, tmp_path: Path) -> None:
    """What an agent has left in its worker holds up no other job."""
    still = (await run(single, "freezing", str(tmp_path)))["result"]
    (tmp_path / "freeze").touch()
    while not (tmp_path / "frozen").exists():  # noqa: ASYNC110 - another process makes it
        await trio.sleep(0.01)
    with trio.fail_after(LONG):
        assert await worker_of(single) != still
        await gone([still])


async def test_a_worker_that_has_ended_gets_no_job(single: Peer) -> None:
    """A worker that is killed while it is idle costs no job."""
    ended = await worker_of(single)
    os.kill(ended, signal.SIGKILL)
    with trio.fail_after(LONG):
        assert await worker_of(single) != ended


async def test_a_worker_that_stands_still_for_a_moment_is_kept(single: Peer) -> None:
    """A job waits for a worker that is slow."""
    slow = await worker_of(single)
    os.kill(slow, signal.SIGSTOP)
    await stopped(slow)
    job = await single.submit("about")
    await trio.sleep(0.5)
    os.kill(slow, signal.SIGCONT)
    assert (await end_of(single, job))["result"]["pid"] == slow


async def test_a_job_that_is_cancelled_while_its_worker_is_asked_leaves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job ends at once, and the worker is given to the next one when it has answered."""
    monkeypatch.setattr(processes, "SILENCE_SECONDS", LONG)
    async with open_with_workers(1, Limits(cancel_grace_seconds=LONG)) as peer:
        slow = await worker_of(peer)
        os.kill(slow, signal.SIGSTOP)
        await stopped(slow)
        job = await peer.submit("about")
        await trio.sleep(0.3)
        with trio.fail_after(LONG / 2):
            await peer.send("job.cancel", {"job_id": job["job_id"]})
            assert (await end_of(peer, job))["code"] == "CANCELLED"
        os.kill(slow, signal.SIGCONT)
        assert await worker_of(peer) == slow
