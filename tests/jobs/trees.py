"""Agents that delegate to others below them, and what a client sees of such trees."""

from __future__ import annotations

import trio

from arcp_trio import Agents, JobContext
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.wire.json import Json

DEPTH = 8


LEASE: Frame = {"agent.delegate": ["*"]}


agents = Agents()
"""They have others work below them."""


@agents.agent("chain")
async def chain(job: JobContext) -> Json:
    """Delegate to this agent as many levels down as the input says, then wait."""
    levels, stubborn = job.input
    with trio.CancelScope(shield=stubborn):
        if levels:
            await job.delegate("chain", [levels - 1, stubborn], lease=LEASE)
        else:
            await job.log("the leaf is there")
        await trio.sleep(1000)


@agents.agent("fan")
async def fan(job: JobContext) -> Json:
    """Delegate to as many talkers as the input says, in turn, with a line before and after each."""
    for n in range(job.input):
        child = await job.delegate("talker", n)
        await job.log(f"before {n}")
        await child.result()
        await job.log(f"after {n}")
        await trio.sleep(1)


@agents.agent("talker")
async def talker(job: JobContext) -> Json:
    """Log two lines, a second each."""
    for line in ("a", "b"):
        await job.log(f"{job.input}{line}")
        await trio.sleep(1)


@agents.agent("loud")
async def loud(job: JobContext) -> Json:
    """Log as many long lines as the input says, without a pause."""
    for _ in range(job.input):
        await job.log("x" * 1000)


@agents.agent("parent")
async def parent(job: JobContext) -> Json:
    """Delegate to the agent that the input names, and wait for it or not."""
    agent, input_, wait = job.input
    child = await job.delegate(agent, input_, lease=LEASE)
    await trio.sleep(1)
    if wait:
        await child.result()


def ends(frames: list[Frame]) -> list[str]:
    """Return the ids of the jobs whose terminals are among the frames, in order."""
    return [frame["job_id"] for frame in frames if frame["type"] in TERMINAL]


def born(frames: list[Frame]) -> list[str]:
    """Return the ids of the children whose acceptances are among the frames, in order."""
    return [
        frame["job_id"]
        for frame in frames
        if frame["type"] == "job.accepted" and "parent_job_id" in frame["payload"]
    ]


def why(frame: Frame) -> tuple[str, str, str]:
    """Return status, code and message of a terminal."""
    payload = frame["payload"]
    return payload["final_status"], payload["code"], payload["message"]


async def chained(peer: Peer, *, stubborn: bool, **fields: Json) -> tuple[str, list[Frame]]:
    """Submit a chain of the greatest depth; return its root, and the frames until the leaf logs."""
    chain: Json = [DEPTH, stubborn]
    root = (await peer.submit("chain", chain, lease_request=LEASE, **fields))["job_id"]
    frames: list[Frame] = []
    while not frames or frames[-1]["payload"].get("kind") != "log":
        frames.append(await peer.receive())
    return root, frames


def talk(frames: list[Frame]) -> list[str]:
    """Return the lines that jobs have logged, in order."""
    return [f["payload"]["body"]["message"] for f in frames if f["payload"].get("kind") == "log"]


FAN = ["before 0", "0a", "0b", "after 0", "before 1", "1a", "1b", "after 1"]
