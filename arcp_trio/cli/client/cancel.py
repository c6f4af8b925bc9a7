"""`arcp-trio cancel`: stops a job, whichever session has submitted it."""

from __future__ import annotations

import sys

from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.options import CancelOptions
from arcp_trio.cli.client.runner import refused, run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import ExitCode
from arcp_trio.cli.text import safe_line
from arcp_trio.wire.errors import PermissionDenied


def run(options: CancelOptions) -> int:
    """Cancel the job, and return the exit code."""
    code = run_client(_cancel, options)
    if code == ExitCode.SUCCESS:
        print(safe_line(f"{options.job_id} is being cancelled"), file=sys.stderr, flush=True)
    return code


async def _cancel(options: CancelOptions, interrupts: Interrupts) -> int:
    async with connected(options, interrupts) as client:
        try:
            await client.stop(options.job_id, options.reason)
        except PermissionDenied as error:
            raise refused(
                error,
                "; if it is yours, press Ctrl-C where it was submitted, or wait until that session"
                " is over",
            ) from error
    return ExitCode.SUCCESS
