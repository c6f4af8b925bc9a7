"""Where the program of a job works: its folder, and its variables."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from shutil import rmtree
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.wire.errors import PermissionDenied

if TYPE_CHECKING:
    from arcp_trio.runtime.job.context import JobContext

_CLEAN_UP_SECONDS: Final = 10.0


@attrs.frozen
class Workplace:
    """The folder in which an agent and its commands start, and their variables."""

    cwd: str
    environment: Mapping[str, str]


@asynccontextmanager
async def folder(job: JobContext, cwd: str | None) -> AsyncGenerator[str, None]:
    """Give the block the folder that a job asks for, or an empty one for as long as it lasts.

    Raises:
        LeaseExpired, BudgetExhausted, PermissionDenied: the lease does not allow that folder.
    """
    if cwd is not None:
        await _check(job, cwd)
        yield cwd
        return
    path = await trio.to_thread.run_sync(partial(tempfile.mkdtemp, prefix="acp-"))
    try:
        yield path
    finally:
        with trio.move_on_after(_CLEAN_UP_SECONDS, shield=True):
            await trio.to_thread.run_sync(
                partial(rmtree, path, ignore_errors=True), abandon_on_cancel=True
            )


async def _check(job: JobContext, cwd: str) -> None:
    job.authorize("fs.read", cwd)
    real = await trio.to_thread.run_sync(os.path.realpath, cwd)
    job.authorize("fs.read", real)
    if not await trio.Path(real).is_dir():
        raise PermissionDenied(f"{cwd} is not a folder that the agent can work in")
