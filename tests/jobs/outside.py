"""Agents that do the same work as plain functions and under asyncio, and what they must do."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Final

from arcp_trio import Agents, AsyncioContext, BlockingContext
from arcp_trio.wire.json import Json, JsonObject

agents: Final = Agents()


@agents.agent("blocking")
def blocking(job: BlockingContext) -> Json:
    """Use each call of a context once."""
    job.log("hello")
    job.thought("hm")
    job.status("working")
    job.progress(1, total=2)
    job.metric("cost.search", Decimal("0.25"), unit="USD")
    job.artifact("file:///a", "text/plain")
    job.emit("x-vendor.mine.done", {"really": True})
    with job.tool_call("search.web", {"q": 1}) as call:
        call.result = {"id": call.id != ""}
    with job.open(Path(job.input) / "a.txt", "w") as file:
        file.write("written\n")
    with job.open(Path(job.input) / "a.txt") as file:
        text = file.read()
    job.authorize("net.fetch", "https://example.com/a")
    job.keep({"n": 1})
    assert job.kept(job.id) == {"n": 1}
    child = job.delegate("echo", "to the child")
    return [text, child.result(), str(job.budget["USD"]), child.id != job.id, job.deadline is None]


@agents.agent("awaiting", loop="asyncio")
async def awaiting(job: AsyncioContext) -> Json:
    """Use each call of a context once."""
    await job.log("hello")
    await job.thought("hm")
    await job.status("working")
    await job.progress(1, total=2)
    await job.metric("cost.search", Decimal("0.25"), unit="USD")
    await job.artifact("file:///a", "text/plain")
    await job.emit("x-vendor.mine.done", {"really": True})
    async with job.tool_call("search.web", {"q": 1}) as call:
        call.result = {"id": call.id != ""}
    async with job.open(Path(job.input) / "a.txt", "w") as file:
        await file.write("written\n")
    async with job.open(Path(job.input) / "a.txt") as file:
        text = await file.read()
    job.authorize("net.fetch", "https://example.com/a")
    await job.keep({"n": 1})
    assert await job.kept(job.id) == {"n": 1}
    child = await job.delegate("echo", "to the child")
    result = await child.result()
    return [text, result, str(job.budget["USD"]), child.id != job.id, job.deadline is None]


@agents.agent("blocking-stream")
def blocking_stream(job: BlockingContext) -> None:
    """Stream the result."""
    with job.stream_result() as out:
        for number in range(3):
            out.write(f"part {number}\n")


@agents.agent("asyncio-stream", loop="asyncio")
async def asyncio_stream(job: AsyncioContext) -> None:
    """Stream the result."""
    async with job.stream_result() as out:
        for number in range(3):
            await out.write(f"part {number}\n")


@agents.agent("blocking-thoughts")
def blocking_thoughts(job: BlockingContext) -> None:
    """Think a word at a time."""
    with job.stream_thought() as out:
        for word in THOUGHTS:
            out.write(word)


@agents.agent("asyncio-thoughts", loop="asyncio")
async def asyncio_thoughts(job: AsyncioContext) -> None:
    """Think a word at a time."""
    async with job.stream_thought() as out:
        for word in THOUGHTS:
            await out.write(word)


THOUGHTS: Final = ["It is ", "3.", "14, ", "or so", ". ", "Then\n", "\n", "what", "? Go", " on"]
SENTENCES: Final = ["It is 3.14, or so. ", "Then\n", "\nwhat? ", "Go on"]


@agents.agent("forgetful", loop="asyncio")
async def forgetful(job: AsyncioContext) -> Json:
    """Forget to await."""
    job.log("lost")  # type: ignore[unused-coroutine]
    steps = job.step("lost", job.log, "lost")
    return str(type(steps).__name__)


FORGOTTEN: Final = [
    {
        "level": "error",
        "message": f"the agent has called AsyncioContext.{call} without await:"
        " the call has done nothing",
    }
    for call in ("log", "step")
]


RESULT: Final = ["written\n", "to the child", "0.75", True, True]
KINDS: Final = [
    *("log", "thought", "status", "progress", "metric", "metric", "artifact_ref"),
    *("x-vendor.mine.done", "tool_call", "tool_result", "delegate"),
]


def lease(folder: Path) -> JsonObject:
    """Return a lease that allows all of it."""
    return {
        "tool.call": ["search.*"],
        "fs.read": [f"{folder}/**"],
        "fs.write": [f"{folder}/**"],
        "net.fetch": ["https://example.com/**"],
        "agent.delegate": ["echo"],
        "cost.budget": ["USD:1.00"],
    }
