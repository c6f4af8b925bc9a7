"""Where the program of a job works: its folder, and its variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.wire.errors import PermissionDenied

if TYPE_CHECKING:
    from arcp_trio.runtime.job.context import JobContext


@attrs.frozen
class Workplace:
    """The folder in which an agent and its commands start, and their variables."""

    cwd: str
    environment: Mapping[str, str]


async def check_folder(job: JobContext, cwd: str) -> None:
    """Return if an agent may work in a folder.

    Raises:
        LeaseExpired, BudgetExhausted, PermissionDenied: the lease does not allow it.
    """
    job.authorize("fs.read", cwd)
    real = await trio.to_thread.run_sync(os.path.realpath, cwd)
    job.authorize("fs.read", real)
    if not await trio.Path(real).is_dir():
        raise PermissionDenied(f"{cwd} is not a folder that the agent can work in")
