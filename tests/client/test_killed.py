"""Calls that are pending when their runtime is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio import Client, ConnectionLost, JobHandle, connect
from tests.client.support import TOKEN

pytestmark = pytest.mark.real_tcp

SERVE = ("-m", "arcp_trio", "serve", "--port=0", "--memory", f"--token=alice={TOKEN}")

SECONDS = 5.0
"""How long it may take until every call has raised, on a busy machine."""


@asynccontextmanager
async def _serving() -> AsyncGenerator[tuple[trio.Process, str], None]:
    """Run a runtime in a process during the block, which gets the process and the URL."""
    process = await trio.lowlevel.open_process(
        [sys.executable, *SERVE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        with trio.fail_after(30):
            said = b""
            while b"\n" not in said:
                said += await process.stdout.receive_some()
        yield process, said.decode().split()[-1]
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def _calls(client: Client, job: JobHandle) -> list[Callable[[], Awaitable[object]]]:
    """Return a call of each kind that waits."""
    return [
        lambda: client.submit("echo"),
        lambda: client.subscribe("job_other"),
        lambda: anext(client.jobs()),
        lambda: client.cancel(job.id),
        job.cancel,
        job.result,
        lambda: anext(job.events()),
        client.wait_closed,
    ]


async def test_a_runtime_that_is_killed() -> None:
    """Each pending call raises soon, and names the lost connection.

    The runtime is stopped first, so that it answers none of the calls.
    """
    told: list[str] = []

    async def pending(call: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(ConnectionLost) as lost:
            await call()
        told.append(str(lost.value))

    with trio.fail_after(60):
        async with (
            _serving() as (process, url),
            connect(url, token=TOKEN, reconnect_seconds=0) as client,
        ):
            job = await client.submit("sleeper", {"seconds": 600})
            process.send_signal(signal.SIGSTOP)
            calls = _calls(client, job)
            async with trio.open_nursery() as nursery:
                for call in calls:
                    nursery.start_soon(pending, call)
                await wait_all_tasks_blocked(0.05)
                assert told == []
                process.kill()
                nursery.cancel_scope.deadline = trio.current_time() + SECONDS
            assert len(told) == len(calls)
            assert all("connection was lost" in words for words in told)
