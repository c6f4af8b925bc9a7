"""Agents whose zygote has no rights, so that the bounds of its user hold for it, too."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Final

from arcp_trio import Agents, ArcpError, BlockingContext
from arcp_trio.wire.json import Json

agents: Final = Agents()
USER: Final = 65_432
"""A user that has no other processes."""

if os.environ.get("WITHOUT_RIGHTS") and os.geteuid() == 0:  # in the zygote alone
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)


@agents.agent("parent", process=True)
def parent(_job: BlockingContext) -> Json:
    """Return the process id of the zygote."""
    return os.getppid()


@contextmanager
def no_more_processes() -> Generator[None]:
    """Have the zygote able to fork no further process during the block."""
    zygote = os.getppid()
    before = resource.prlimit(zygote, resource.RLIMIT_NPROC)
    resource.prlimit(zygote, resource.RLIMIT_NPROC, (1, before[1]))
    try:
        yield
    finally:
        resource.prlimit(zygote, resource.RLIMIT_NPROC, before)


@agents.agent("delegating", process=True)
def delegating(job: BlockingContext) -> Json:
    """Have a child that needs another process; return its result, or its error."""
    with no_more_processes() if job.input == "bounded" else nullcontext():
        try:
            return job.delegate("parent").result()
        except ArcpError as error:
            return error.payload()


@agents.agent("bounding", process=True)
def bounding(job: BlockingContext) -> Json:
    """Go on for some seconds, in which the zygote can fork no further process."""
    with no_more_processes():
        job.log(f"{os.getpid()}")
        time.sleep(job.input)
    return "done"
