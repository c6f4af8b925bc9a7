"""What the tests of the protocol share: a runtime with a few agents, and ways to say anything."""

from __future__ import annotations

import json

import trio

from arcp_trio import Agents, JobContext, Limits, Runtime, StaticTokens
from arcp_trio.testing import Peer, TrioClock
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.json import Json

OTHER_TOKEN = "other-token"
"""Of a principal that has nothing to do with the one of `TEST_TOKEN`."""

agents = Agents()


@agents.agent("echo")
async def echo(job: JobContext) -> Json:
    """Return the input."""
    return job.input


@agents.agent("sleeper")
async def sleeper(_job: JobContext) -> Json:
    """Sleep until the job is ended from outside."""
    await trio.sleep_forever()


def make_runtime(**limits: int) -> Runtime:
    """A runtime in virtual time for two principals."""
    runtime = Runtime(
        auth=StaticTokens({TEST_TOKEN: "alice", OTHER_TOKEN: "bob"}),
        clock=TrioClock(),
        limits=Limits(**limits),
    )
    runtime.add(agents)
    return runtime


def text_of(kind: str, payload: Json = None, /, **envelope: Json) -> str:
    """The text of a frame, right or wrong: `envelope` adds fields or replaces ours."""
    frame = {"arcp": "1.1", "id": "x1", "type": kind, "payload": {} if payload is None else payload}
    return json.dumps(frame | envelope)


async def answers(peer: Peer, count: int) -> list[Frame]:
    """The next frames that answer a request, in the order they come."""
    found: list[Frame] = []
    while len(found) < count:
        frame = await peer.receive()
        if frame["type"] in {"session.error", "job.accepted"}:
            found.append(frame)
        else:
            peer.seen.append(frame)
    return found
