"""Durable agents in threads, under asyncio and in worker processes, over a file, in real time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import trio

from arcp_trio import (
    Agents,
    AsyncioContext,
    BlockingContext,
    JobContext,
    Json,
    Retry,
    Runtime,
    SqliteStore,
    StaticTokens,
)
from arcp_trio.testing import open_pair

agents = Agents()


def note(path: str, text: str) -> str:
    """Have an effect: a line in a file."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")
    return text


async def note_async(path: str, text: str) -> str:
    """Have the same effect."""
    return note(path, text)


@agents.agent("thread", durable=True)
def in_a_thread(job: BlockingContext) -> Json:
    """Do two steps, and a tool call, with a rest between them."""
    with job.tool_call("shop.block"):
        pass
    got = [job.step("one", note, job.input, "one")]
    job.log("one is done")
    job.sleep(0.1)
    got.append(job.call_tool("shop", note, path=job.input, text="two"))
    while job.run == 1:  # each call of a job that is suspended raises AgentCancelled
        time.sleep(0.05)
        job.log("waiting")
    got.append(job.step("three", note, job.input, "three", retry=Retry()))
    return [*got, job.run]


@agents.agent("asyncio", durable=True, loop="asyncio")
async def under_asyncio(job: AsyncioContext) -> Json:
    """Do the same, with tasks beside each other."""
    async with job.tool_call("shop.block"):
        pass
    got = [await job.step("one", note_async, job.input, "one")]
    await job.log("one is done")
    await job.sleep(0.1)
    two, _ = await asyncio.gather(
        job.call_tool("shop", note_async, path=job.input, text="two"),
        job.step("beside", note_async, job.input, "beside"),
    )
    got.append(two)
    if job.run == 1:
        await asyncio.sleep(1_000)
    got.append(await job.step("three", note_async, job.input, "three", retry=Retry()))
    return [*got, job.run]


@agents.agent("trio", durable=True)
async def under_trio(job: JobContext) -> Json:
    """Do the same on Trio's loop."""
    async with job.tool_call("shop.block"):
        pass
    got = [await job.step("one", note_async, job.input, "one")]
    await job.log("one is done")
    await job.sleep(0.1)
    got.append(await job.call_tool("shop", note_async, path=job.input, text="two"))
    if job.run == 1:
        await trio.sleep_forever()
    got.append(await job.step("three", note_async, job.input, "three", retry=Retry()))
    return [*got, job.run]


def runtime_on(store: SqliteStore, *, process: bool) -> Runtime:
    """Return a runtime with these agents over a store."""
    runtime = Runtime(auth=StaticTokens({"test": "alice"}), store=store)
    runtime.add(agents.in_processes() if process else agents)
    return runtime


@pytest.mark.real_tcp
@pytest.mark.parametrize("process", [False, True], ids=["here", "worker"])
@pytest.mark.parametrize("name", ["thread", "asyncio", "trio"])
async def test_wherever_the_agent_runs(name: str, tmp_path: Path, *, process: bool) -> None:
    """A job goes on after an orderly end, with each effect once, and tells nothing twice."""
    path, effects = tmp_path / "arcp.db", tmp_path / "effects"
    lease = {"tool.call": ["*"]}
    with trio.fail_after(100):
        runtime = runtime_on(SqliteStore(path), process=process)
        async with runtime, open_pair(runtime, token="test") as client:
            job = await client.submit(name, str(effects), lease=lease, idempotency_key="k")
            while not effects.exists() or "two" not in effects.read_text():  # noqa: ASYNC110
                await trio.sleep(0.05)
            await trio.sleep(0.2)
        store = SqliteStore(path)
        runtime = runtime_on(store, process=process)
        async with runtime, open_pair(runtime, token="test") as client:
            job = await client.submit(name, str(effects), lease=lease, idempotency_key="k")
            assert await job.result() == ["one", "two", "three", 2]
            journal = b"".join(e.tail for _, e in await store.owed({job.id: 0}, 99, 99_999))
    assert sorted(effects.read_text().split()) == sorted(
        ["one", "two", "three", *(["beside"] if name == "asyncio" else [])]
    )
    for kind, times in (("tool_call", 2), ("tool_result", 2), ("status", 1)):
        assert journal.count(b'"kind":"%b"' % kind.encode()) == times
