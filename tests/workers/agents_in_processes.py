"""Agents that run in worker processes: of a module, because workers import it."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from pathlib import Path
from threading import Thread
from typing import Final

import trio

from arcp_trio import (
    AgentCancelled,
    Agents,
    ArcpError,
    AsyncioContext,
    BlockingContext,
    JobContext,
    JobError,
    PermissionDenied,
)
from arcp_trio.wire.json import Json
from tests.jobs import outside
from tests.workers.in_a_worker import clean, to_the_runtime

agents: Final = Agents()
agents.agent("blocking", process=True)(outside.blocking)
agents.agent("awaiting", loop="asyncio", process=True)(outside.awaiting)
agents.agent("blocking-stream", process=True)(outside.blocking_stream)
agents.agent("asyncio-stream", loop="asyncio", process=True)(outside.asyncio_stream)
agents.agent("forgetful", loop="asyncio", process=True)(outside.forgetful)


@agents.agent("forgetful-on-trio", process=True)
async def forgetful_on_trio(job: JobContext) -> None:
    """Forget to await."""
    job.log("lost")  # type: ignore[unused-coroutine]


@agents.agent("on-trio", process=True)
async def on_trio(job: JobContext) -> Json:
    """Use the calls of a context on Trio's loop."""
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(job.log, "hello")
    async with job.tool_call("search.web", {"q": 1}) as call:
        call.result = {"hits": 3}
    async with job.open(Path(job.input) / "a.txt", "w") as file:
        await file.write("written\n")
    async with job.open(Path(job.input) / "a.txt") as file:
        text = await file.read()
    job.authorize("net.fetch", "https://example.com/a")
    await job.keep({"n": 1})
    assert await job.kept(job.id) == {"n": 1}
    assert job.grace > 0
    assert job.limits.jobs > 0
    assert job.sends_chunks
    child = await job.delegate("echo", "to the child")
    return [text, await child.result(), str(job.budget["USD"])]


@agents.agent("about", process=True)
def about(_job: BlockingContext) -> Json:
    """Tell of the process."""
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getpgid(0),
        "environment": sorted(os.environ),
        "no_new_privs": status["NoNewPrivs"],
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "memory": resource.getrlimit(resource.RLIMIT_AS)[0],
        "most_descriptors": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "uid": os.getuid(),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


@agents.agent("refused", process=True)
def refused(job: BlockingContext) -> Json:
    """Meet a refusal, and then fail by another."""
    try:
        job.authorize("net.fetch", "https://example.com")
    except PermissionDenied as error:
        job.log(f"refused: {error.code}")
    with job.tool_call("shell.run"):
        raise AssertionError("not reached")


@agents.agent("failing", process=True)
def failing(job: BlockingContext) -> Json:
    """Raise, so that the client reads it, or so that it does not."""
    raise JobError("told") if job.input else ZeroDivisionError("secret")


@agents.agent("talker", process=True)
def talker(job: BlockingContext) -> Json:
    """Log until cancelled."""
    try:
        while True:
            job.log("on and on")
            time.sleep(0.01)
    except AgentCancelled:
        clean(job.input)
        raise


@agents.agent("asyncio-sleeper", loop="asyncio", process=True)
async def asyncio_sleeper(job: AsyncioContext) -> Json:
    """Sleep until cancelled."""
    try:
        await job.log("waiting")
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        clean(job.input)
        raise


@agents.agent("trio-sleeper", process=True)
async def trio_sleeper(job: JobContext) -> Json:
    """Sleep until cancelled."""
    try:
        await job.log("waiting")
        await trio.sleep(60)
    except trio.Cancelled:
        clean(job.input)
        raise


@agents.agent("stuck", process=True)
def stuck(job: BlockingContext) -> Json:
    """Compute and never give way, with a child process beside it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    job.log(f"{os.getpid()} {child}")
    while True:
        pass


@agents.agent("dying", process=True)
def dying(_job: BlockingContext) -> Json:
    """End the process."""
    os.kill(os.getpid(), signal.SIGKILL)


@agents.agent("babbling", process=True)
def babbling(job: BlockingContext) -> Json:
    """Write what is not a frame to the runtime."""
    os.write(to_the_runtime(), bytes([job.input]) * 100)
    time.sleep(60)


@agents.agent("leaving", process=True)
def leaving(job: BlockingContext) -> Json:
    """Leave a thread that logs for ever."""

    def chatter() -> None:
        while True:
            job.log("left over")
            time.sleep(0.001)

    Thread(target=chatter, daemon=True).start()
    return os.getpid()


@agents.agent("wrong-loop", process=True)
async def wrong_loop(_job: JobContext) -> Json:
    """Call asyncio on Trio's loop."""
    await asyncio.sleep(1)


@agents.agent("nothing", process=True)
async def nothing(_job: JobContext) -> Json:
    """Return at once."""


@agents.agent("heavy", process=True)
def heavy(job: BlockingContext) -> Json:
    """Return a text of that many characters."""
    return "x" * job.input


@agents.agent("loud", process=True)
def loud(job: BlockingContext) -> Json:
    """Log more than fits into a frame, and say how that is refused; then log more calmly."""
    try:
        job.log("x" * job.input)
    except (ArcpError, ValueError) as error:
        job.log("calm")
        return str(error)


@agents.agent("busy", process=True)
def busy(job: BlockingContext) -> Json:
    """Compute for a number of seconds of this process's time."""
    end = time.process_time() + job.input
    while time.process_time() < end:
        pass
    return os.getpid()
