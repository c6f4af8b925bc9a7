"""Agents that delegate or are delegated to, the lease they need, and the answers they get."""

from __future__ import annotations

from arcp_trio import Agents, ArcpError, JobContext
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json

LEASE: Frame = {
    "agent.delegate": ["*"],
    "tool.call": ["search.*"],
    "cost.budget": ["USD:5.00"],
}


agents = Agents()


@agents.agent("boss")
async def boss(job: JobContext) -> Json:
    """Delegate as the input says, and return what the delegation led to."""
    asked: Frame = dict(job.input)
    wait = asked.pop("wait", True)
    for name, value in asked.pop("spend", {}).items():
        await job.metric("cost.own", value, unit=name)
    try:
        child = await job.delegate(**asked)
        return await child.result() if wait else child.id
    except ArcpError as error:
        return {"refused": error.code}


@agents.agent("worker")
async def worker(job: JobContext) -> Json:
    """Emit a few events of several kinds."""
    await job.log("at work")
    async with job.tool_call("search.web") as call:
        call.result = {"lease": dict(job.lease)}
    await job.metric("cost.work", 0.5, unit="USD")
    return {"parent": job.parent_id, "trace": job.trace_id}


def answers(peer: Peer, job_id: str) -> list[str]:
    """Return the outcome of each of a job's delegations: the refusal's code, or "accepted"."""
    events = [frame["payload"] for frame in peer.recorder.events(job_id)]
    errors = {
        body["call_id"]: body["error"]["code"]
        for event in events
        if "error" in (body := event["body"])
    }
    delegations = [event["body"] for event in events if event["kind"] == "delegate"]
    return [errors.get(body["delegate_id"], "accepted") for body in delegations]
