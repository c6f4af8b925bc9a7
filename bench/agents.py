"""Agents that the demo agents lack."""

from __future__ import annotations

import time

import trio

from arcp_trio import Agents, JobContext
from arcp_trio.wire.json import Json

agents = Agents()
_gate = trio.Semaphore(0)


@agents.agent("announcer")
async def announcer(job: JobContext) -> Json:
    """Log as `chatty` does, after a job of `go` has started."""
    n, size = job.input["n"], job.input["size"]
    await _gate.acquire()
    for number in range(1, n + 1):
        await job.log(f"message {number} ".ljust(size, ".")[:size])
    return {"n": n}


@agents.agent("go")
async def go(_job: JobContext) -> Json:
    """Let an announcer begin."""
    _gate.release()
    return None


@agents.agent("ticker")
async def ticker(job: JobContext) -> None:
    """Log the time `n` times, once every `interval` seconds, and catch up after being late.

    The times are those of the machine's monotonic clock, which all processes share.
    """
    given = job.input
    due = given["begin"]
    for _ in range(given["n"]):
        await trio.sleep(max(0, due - time.monotonic()))
        await job.log(f"sent {time.monotonic():020.9f} due {due:020.9f}")
        due += given["interval"]


@agents.agent("sleeper")
async def sleeper(_job: JobContext) -> None:
    """Do nothing until the job is ended."""
    await trio.sleep_forever()
