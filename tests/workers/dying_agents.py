"""Durable agents in worker processes that end in the middle of their work."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from arcp_trio import Agents, JobContext
from arcp_trio.wire.json import Json

agents: Final = Agents()


def note(folder: str, what: str) -> None:
    """Note in a file what is done."""
    with (Path(folder) / "done").open("a") as file:
        file.write(f"{what}\n")


def die() -> None:
    """End the worker as the kernel does when there is no memory left."""
    os.kill(os.getpid(), signal.SIGKILL)


@agents.agent("dying", durable=True, process=True)
async def dying(job: JobContext) -> Json:
    """Die in a second step, the first two times."""
    folder = str(job.input)

    async def work(what: str) -> str:
        note(folder, what)
        return what

    async def cut_off() -> str:
        note(folder, "second")
        if job.run <= 2:
            die()
        return "second"

    await job.log("begin")
    async with job.stream_result() as out:
        await out.write(f"{await job.step('first', work, 'first')}, ")
        await out.write(await job.step("second", cut_off))


@agents.agent("doomed", durable=True, process=True)
async def doomed(job: JobContext) -> Json:
    """Die in each run."""
    note(str(job.input), f"run {job.run}")
    die()


@agents.agent("mortal", process=True)
async def mortal(job: JobContext) -> Json:
    """Die, and be called once only."""
    note(str(job.input), f"run {job.run}")
    die()


@agents.agent("asking", durable=True, process=True)
async def asking(job: JobContext) -> Json:
    """Ask people, and say in which process, and which its zygote is."""
    child = await job.delegate("answered", None, lease={"tool.call": ["human.ask"]})
    await job.log(f"{os.getpid()} {os.getppid()}", level="debug")
    return [await job.ask("Go on?", options=["yes", "no"]), await child.result(), job.run]


@agents.agent("answered", durable=True, process=True)
async def answered(job: JobContext) -> Json:
    """Ask people, too."""
    return await job.ask("And the child?", options=["yes", "no"])
