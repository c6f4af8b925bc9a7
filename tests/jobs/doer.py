"""An agent that does what its input lists, and what a client is told about it."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import trio

from arcp_trio import Agents, ArcpError, InvalidEvent, JobContext
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json, JsonObject
from arcp_trio.wire.timestamps import rfc3339

STARTED_AT = 2_000_000_000.0
"""The time of day when Trio's clock says 0."""

agents = Agents()


class SteppedClock:
    """A wall clock that goes with Trio's clock, and that a test can set."""

    def __init__(self) -> None:
        self.step = 0.0

    def now(self) -> float:
        """Return the time of day in seconds since 1970, UTC."""
        return STARTED_AT + trio.current_time() + self.step

    def after(self, seconds: float) -> str:
        """Return the time of day `seconds` from now, in the format of `expires_at`."""
        return rfc3339(self.now() + seconds)


@agents.agent("doer")
async def doer(job: JobContext) -> Json:
    """Take the steps that the input lists, and return the outcome of each."""
    return [await _came_to(job, *step) for step in job.input]


async def _came_to(job: JobContext, what: str, *args: Json) -> Json:
    try:
        return await _step(job, what, *args)
    except ArcpError as error:
        return error.code
    except InvalidEvent:
        return "InvalidEvent"


async def _step(job: JobContext, what: str, *args: Json) -> Json:
    match what:
        case "authorize":
            job.authorize(*args)
        case "tool":
            async with job.tool_call(*args) as call:
                call.result = "called"
        case "open":
            async with job.open(*args):
                pass
        case "delegate":
            child = await job.delegate(**args[0])
            return await child.result()
        case "metric":
            await job.metric(*args)
        case "decimal":
            name, value, unit = args
            await job.metric(name, Decimal(value), unit)
        case "sleep":
            await trio.sleep(*args)
        case "log":
            await job.log(*args)
        case "left":
            return {currency: str(left) for currency, left in job.budget.items()}
        case _:
            raise AssertionError(what)
    return "done"


async def do(peer: Peer, *steps: Sequence[Json], **fields: Json) -> tuple[Frame, list[Frame]]:
    """Have a job take these steps; return its terminal's payload and its events' bodies."""
    accepted = await peer.submit("doer", [list(step) for step in steps], **fields)
    return await whole(peer, accepted["job_id"])


async def whole(peer: Peer, job_id: str) -> tuple[Frame, list[Frame]]:
    """Return the payload of a job's terminal and the bodies of its events."""
    end = await peer.until_terminal(job_id)
    bodies: list[JsonObject] = [f["payload"]["body"] for f in peer.recorder.events(job_id)]
    return end["payload"], bodies
