"""Agents that keep notes, for runtimes of tests and for a real server."""

from __future__ import annotations

import os
import signal
from typing import Final

from arcp_trio import Agents, JobContext, Json

agents: Final = Agents()


@agents.agent("keeper")
async def keeper(job: JobContext) -> Json:
    """Keep each of the notes of the input, and return what is kept in the end."""
    for note in job.input:
        await job.keep(note)
    return await job.kept(job.id)


@agents.agent("reader")
async def reader(job: JobContext) -> Json:
    """Return the note of the job that the input names."""
    return await job.kept(job.input)


@agents.agent("mortal")
async def mortal(job: JobContext) -> None:
    """Keep a note, and kill the process as soon as it is kept."""
    await job.keep(job.input)
    os.kill(os.getpid(), signal.SIGKILL)
