"""Agents for the tests of order, and what their events say."""

from __future__ import annotations

import trio

from arcp_trio import Agents, JobContext
from arcp_trio.testing.peer import Peer
from arcp_trio.wire.json import Json

agents = Agents()


@agents.agent("chatty")
async def chatty(job: JobContext) -> Json:
    """Emit as many events as the input says, without a pause."""
    for n in range(job.input):
        await job.log(str(n))
    return job.input


@agents.agent("brisk")
async def brisk(job: JobContext) -> Json:
    """Emit events fifty at a time, at a pace that a client can keep up with."""
    for n in range(job.input):
        await job.log(str(n))
        if n % 50 == 49:
            await trio.sleep(0.01)
    return job.input


@agents.agent("steady")
async def steady(job: JobContext) -> Json:
    """Emit an event a second, for as many seconds as the input says."""
    for n in range(job.input):
        await job.log(str(n))
        await trio.sleep(1)
    return job.input


@agents.agent("endless")
async def endless(job: JobContext) -> None:
    """Emit until cancelled, with a checkpoint each time."""
    n = 0
    while True:
        await job.log(str(n))
        await trio.sleep(0.001)
        n += 1


def places(peer: Peer, job_id: str) -> list[int]:
    """Return the numbers that the job's log events say, in the order of `event_seq`."""
    frames = sorted(peer.recorder.events(job_id), key=lambda frame: int(frame["event_seq"]))
    payloads = [frame["payload"] for frame in frames]
    return [int(said["body"]["message"]) for said in payloads if said["kind"] == "log"]
