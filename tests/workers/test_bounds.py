"""Bounds of the machine that leave no room for another worker cost no other job. In real time."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from arcp_trio import Runtime, StaticTokens, Workers
from arcp_trio.runtime.workers.processes import PAUSE_SECONDS
from arcp_trio.testing import Peer, open_peer
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.json import Json
from tests.processes import children_of
from tests.workers import bounded_agents
from tests.workers.support import end_of, run

LEASE: Json = {"agent.delegate": ["*"]}


@asynccontextmanager
async def open_bounded(workers: Workers) -> AsyncGenerator[Peer, None]:
    """Open a runtime with workers, and a peer."""
    with trio.fail_after(30):
        async with Runtime(auth=StaticTokens({TEST_TOKEN: "alice"}), workers=workers) as runtime:
            runtime.add(bounded_agents.agents)
            async with open_peer(runtime) as peer:
                await peer.hello()
                yield peer


def workers(count: int) -> Workers:
    """Return settings by which bounds of processes hold."""
    return Workers(count=count, environment={"WITHOUT_RIGHTS": "yes"})


async def test_a_child_for_which_there_is_no_process_fails() -> None:
    """Its parent is told what helps, and can delegate once more processes are allowed."""
    async with open_bounded(workers(1)) as peer:
        zygote = (await run(peer, "parent"))["result"]
        error = (await run(peer, "delegating", "bounded", lease_request=LEASE))["result"]
        assert (error["code"], error["retryable"]) == ("INTERNAL_ERROR", True)
        assert "ulimit -u" in error["message"]
        assert (await run(peer, "delegating", lease_request=LEASE))["result"] == zygote


async def test_jobs_fail_while_no_worker_can_be_forked() -> None:
    """Each job is told in its turn why it has no process; one that runs goes on, and later ones."""
    async with open_bounded(workers(2)) as peer:
        zygote = (await run(peer, "parent"))["result"]
        bounding = await peer.submit("bounding", 6)
        own = int((await peer.expect("job.event"))["payload"]["body"]["message"])
        await run(peer, "parent")  # so that the other worker has begun
        for pid in children_of(zygote) - {own}:
            os.kill(pid, signal.SIGKILL)
        for job in [await peer.submit("parent") for _ in range(2)]:
            assert "ulimit -u" in (await end_of(peer, job))["message"]
        assert (await end_of(peer, bounding))["result"] == "done"
        assert (await run(peer, "parent"))["result"] == zygote


async def test_a_runtime_without_descriptors_keeps_its_workers() -> None:
    """A worker that the runtime has no socket for is refused, and others go on."""
    async with open_bounded(workers(1)) as peer:
        zygote = (await run(peer, "parent"))["result"]
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, before[1]))
        try:
            error = (await run(peer, "delegating", lease_request=LEASE))["result"]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert "ulimit -n" in error["message"]
        assert (await run(peer, "parent"))["result"] == zygote


async def test_a_worker_that_cannot_begin_is_not_tried_without_end() -> None:
    """A worker without memory for its threads ends; the job is told, and a pause follows."""
    async with open_bounded(Workers(count=1, memory_bytes=1)) as peer:
        began = trio.current_time()
        for _ in range(2):
            with trio.fail_after(10):
                end = await run(peer, "parent")
            assert (end["code"], end["retryable"]) == ("INTERNAL_ERROR", True)
            assert "standard error says why" in end["message"]
        assert trio.current_time() - began >= PAUSE_SECONDS
