"""Agents in worker processes that take from their own process what it needs to go on."""

from __future__ import annotations

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

from arcp_trio import Agents, BlockingContext, JobContext
from arcp_trio.wire.json import Json

agents: Final = Agents()


@contextmanager
def no_descriptors() -> Generator[None]:
    """Have no descriptor left during the block."""
    taken: list[int] = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        yield
    finally:
        for each in taken:
            os.close(each)


@agents.agent("without-descriptors", process=True)
async def without_descriptors(job: JobContext) -> Json:
    """Open a file with no descriptor left, and then with some; return the error, and the text."""
    path = Path(job.input)
    number: int | None = None
    with no_descriptors(), trio.move_on_after(5):
        try:
            async with job.open(path):
                pass
        except OSError as error:
            number = error.errno
    async with job.open(path) as file:
        return [number, await file.read()]


@agents.agent("without-memory", process=True)
def without_memory(job: BlockingContext) -> Json:
    """Wait for an answer that needs more memory than is left."""
    child = job.delegate("large", 450_000)
    resource.setrlimit(resource.RLIMIT_DATA, (1, resource.RLIM_INFINITY))
    child.result()
