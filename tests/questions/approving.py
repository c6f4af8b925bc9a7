"""An agent that asks for approvals of what its input lists, and how a test's client decides."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from arcp_trio import Agents, ApprovalNeeded, ArcpError, JobContext, Json
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.ids import new_id
from tests.questions.support import AskingStage

ASK = "x-vendor.arcp-trio.ask."

agents = Agents()


async def do(job: JobContext, capability: str, target: str) -> str:
    """Do one thing if the lease allows it, or somebody does; return how it went."""
    call_id, tool, args = new_id("call_"), f"test/{capability}", {"of": target}
    await job.emit("tool_call", {"tool": tool, "call_id": call_id, "args": args})
    approved, told = None, {}
    try:
        try:
            job.authorize(capability, target)
        except ApprovalNeeded:
            await job.ask_approval(call_id, tool, args, capability, [target])
            told = dict(await job.decision(call_id))
            approved = call_id
        if capability == "fs.write":
            async with job.open(target, "w", approved=approved) as file:
                await file.write("approved")
    except (ArcpError, OSError) as error:
        known = error if isinstance(error, ArcpError) else ArcpError("no such file")
        await job.emit("tool_result", {"call_id": call_id, "error": known.payload()})
        return known.code
    await job.emit("tool_result", {"call_id": call_id, "result": {"done": True, **told}})
    return "done"


@agents.agent("careful")
async def careful(job: JobContext) -> list[str]:
    """Do what the input lists, one thing after the other."""
    return [await do(job, capability, target) for capability, target in job.input]


@agents.agent("bold")
async def bold(job: JobContext) -> str:
    """Ask for what the input names without a look at the lease; return how it went."""
    capability, *targets = job.input
    try:
        await job.ask_approval("call_1", "test", None, capability, targets)
        await job.decision("call_1")
    except ArcpError as error:
        return error.code
    return "done"


@agents.agent("hasty")
async def hasty(job: JobContext) -> None:
    """Do what the input lists, all at once."""
    async with trio.open_nursery() as nursery:
        for capability, target in job.input:
            nursery.start_soon(do, job, capability, target)


@agents.agent("manager")
async def manager(job: JobContext) -> Json:
    """Have another agent do what the input lists, as far as this one may ask for it."""
    patterns = {name: each for name, each in job.lease.items() if name.startswith(ASK)}
    child = await job.delegate("careful", job.input, lease=patterns)
    return await child.result()


@asynccontextmanager
async def approving(**options: Json) -> AsyncGenerator[AskingStage]:
    """Run a runtime with these agents."""
    async with AskingStage.asking(**options) as stage:
        stage.runtime.add(agents)
        yield stage


async def begun(
    peer: Peer, *wanted: tuple[str, str], agent: str = "careful", **lease: list[str]
) -> str:
    """Submit a job that wants to do this, and may ask for any tool, or what `lease` says."""
    ask = {f"{ASK}{name.replace('_', '.')}": patterns for name, patterns in lease.items()}
    request = ask or {f"{ASK}tool.call": ["*"]}
    job = await peer.submit(agent, [list(each) for each in wanted], lease_request=request)
    job_id: str = job["job_id"]
    return job_id


async def result_of(peer: Peer, call_id: str) -> Frame:
    """Return the body of a tool call's result."""
    while True:
        payload = (await peer.expect("job.event"))["payload"]
        if payload["kind"] == "tool_result" and payload["body"]["call_id"] == call_id:
            body: Frame = payload["body"]
            return body
