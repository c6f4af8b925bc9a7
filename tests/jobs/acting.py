"""An agent that does what its test says, and what a client sees of its job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from arcp_trio import JobContext, Runtime
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json

Act = Callable[[JobContext], Awaitable[Json]]


async def start(runtime: Runtime, peer: Peer, act: Act, **fields: Json) -> str:
    """Have an agent do this, and return the job's id."""
    runtime.agent("actor")(act)
    accepted = await peer.submit("actor", **fields)
    job_id: str = accepted["job_id"]
    return job_id


async def end_of(runtime: Runtime, peer: Peer, act: Act) -> Frame:
    """Have an agent do this, and return the payload of the job's terminal."""
    end = await peer.until_terminal(await start(runtime, peer, act))
    payload: Frame = end["payload"]
    return payload


async def play(runtime: Runtime, peer: Peer, act: Act) -> Json:
    """Have an agent do this, and return its result."""
    end = await end_of(runtime, peer, act)
    assert end["final_status"] == "success", end
    return end["result"]


def said(peer: Peer) -> list[tuple[str, Frame]]:
    """Return kind and body of the events that the peer has seen, in order."""
    events = [frame["payload"] for frame in peer.seen if frame["type"] == "job.event"]
    return [(event["kind"], event["body"]) for event in events]
