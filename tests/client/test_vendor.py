"""The client with the vendor's Python SDK runtime, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from arcp_trio import (
    AgentNotAvailable,
    Event,
    JobCancelled,
    JobNotFound,
    ResumeWindowExpired,
    Unauthenticated,
    connect,
)
from arcp_trio.client.lifecycle import CLOSE_SECONDS

RUNTIME = Path(__file__).with_name("vendor_runtime.py")

pytestmark = pytest.mark.real_tcp


@asynccontextmanager
async def vendor() -> AsyncGenerator[int, None]:
    """Run the runtime during the block, which gets its port."""
    process = await trio.lowlevel.open_process(
        [sys.executable, str(RUNTIME)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        with trio.fail_after(30):
            said = b""
            while not said.endswith(b"\n"):
                said += await process.stdout.receive_some()
            yield int(said)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def test_what_its_users_do() -> None:
    """Every call of a client works with that runtime."""
    history_read = trio.Event()

    async def handle(_event: Event) -> None:
        await history_read.wait()

    async with vendor() as port:
        url = f"ws://127.0.0.1:{port}/arcp"
        with pytest.raises(Unauthenticated):
            async with connect(url, token="wrong"):
                pytest.fail("it connected")
        async with (
            connect(url, token="tok") as client,
            connect(url, token="tok", on_event=handle) as slow,
            connect(url, token="tok") as other,
        ):
            assert {"echo", "ticker"} <= {agent.name for agent in client.agents}
            echo = await client.submit("echo", {"text": "é漢😀"})
            assert [event.body["message"] async for event in echo.events()] == ["echo started"]
            assert await echo.result() == {"echoed": {"text": "é漢😀"}}
            # This runtime's history has only what the submitter has not handled yet.
            long = await slow.submit("ticker", 100, budget={"USD": 5})
            assert long.budget == {"USD": 5}
            with pytest.raises(AgentNotAvailable):
                await client.submit("nobody")
            with pytest.raises(JobNotFound):
                await other.subscribe("job_none")
            observed = await other.subscribe(long.id, history=True)
            own = await other.submit("ticker", 3)
            numbers = [event.body["message"] async for event in own.events()]
            assert numbers == ["0", "1", "2"]
            seen = []
            async for event in observed.events():
                seen.append(event.body["message"])
                if len(seen) == 5:
                    break
            assert seen == ["0", "1", "2", "3", "4"]
            history_read.set()
            running = [info.id async for info in client.jobs(status=["running"])]
            assert running == [long.id]
            await long.cancel("enough")
            with pytest.raises(JobCancelled):
                await long.result()
            with pytest.raises(JobCancelled):
                await observed.result()


async def test_leaving() -> None:
    """Closing takes no time, and the session's job goes on."""
    async with vendor() as port:
        url = f"ws://127.0.0.1:{port}/arcp"
        with trio.fail_after(30):
            async with connect(url, token="tok") as client, connect(url, token="tok") as other:
                job = await client.submit("ticker", 10)
                before = trio.current_time()
                await client.close()
                # This runtime does not answer `session.close` in the standard way.
                assert trio.current_time() - before < CLOSE_SECONDS
                await client.close()
                observed = await other.subscribe(job.id)
                assert await observed.result() == {"n": 10}


async def test_a_drop_in_the_middle() -> None:
    """After a drop the results of ended and running jobs arrive; lost events are named."""
    async with vendor() as port:
        streams: list[trio.SocketStream] = []
        down = trio.Event()
        down.set()

        async def dial() -> trio.abc.Stream:
            await down.wait()
            streams.append(await trio.open_tcp_stream("127.0.0.1", port))
            return streams[-1]

        async with connect(dial, token="tok") as client:
            short = await client.submit("ticker", 3)
            long = await client.submit("ticker", 25)
            assert (await anext(short.events())).body["message"] == "0"
            down = trio.Event()
            await trio.aclose_forcefully(streams[-1])
            await trio.sleep(1)
            down.set()
            assert await short.result() == {"n": 3}
            assert await long.result() == {"n": 25}
            with pytest.raises(ResumeWindowExpired, match="lost with the connection"):
                [event async for event in long.events()]
            assert await (await client.submit("echo", 1)).result() == {"echoed": 1}
        assert len(streams) == 2
