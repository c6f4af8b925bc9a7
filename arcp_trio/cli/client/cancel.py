"""`arcp-trio cancel`: stops a job, whichever session has submitted it."""

from __future__ import annotations

from arcp_trio import Client, ObservedJob
from arcp_trio.cli.client.connecting import PATIENCE_SECONDS, connected
from arcp_trio.cli.client.follow import wait_for_end
from arcp_trio.cli.client.options import CancelOptions
from arcp_trio.cli.client.output import json_line, stderr, stdout
from arcp_trio.cli.client.runner import refused, run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import ExitCode
from arcp_trio.cli.text import safe_line
from arcp_trio.wire.errors import PermissionDenied
from arcp_trio.wire.json import JsonObject


def run(options: CancelOptions) -> int:
    """Cancel the job, and return the exit code."""
    return run_client(_cancel, options)


async def _cancel(options: CancelOptions, interrupts: Interrupts) -> int:
    job_id, reason = options.job_id, options.reason
    patience = None if options.wait else PATIENCE_SECONDS
    async with connected(options, interrupts, patience=patience) as client:
        # Observed from before the cancel, so that the end cannot be missed.
        job = await client.subscribe(job_id) if options.wait else None
        await _ask(client, options)
        said: JsonObject = {"type": "job.cancelled", "job_id": job_id}
        said |= {} if reason is None else {"reason": reason}
        await _tell(f"{job_id} is being cancelled", said if options.json else None)
        if job is not None:
            return await _wait(job, options)
    return ExitCode.SUCCESS


async def _ask(client: Client, options: CancelOptions) -> None:
    try:
        await client.stop(options.job_id, options.reason)
    except PermissionDenied as error:
        raise refused(
            error,
            "; press Ctrl-C where it was submitted, or wait until that session is over",
        ) from error


async def _wait(job: ObservedJob, options: CancelOptions) -> ExitCode:
    """Wait for the end, tell it, and return whether the cancel has brought it about."""
    terminal = await wait_for_end(job)
    status = terminal["final_status"]
    said: JsonObject = {"type": terminal["type"], "job_id": job.id} | terminal
    await _tell(f"{job.id} has ended: {status}", said if options.json else None)
    return ExitCode.SUCCESS if status == "cancelled" else ExitCode.FAILED


async def _tell(text: str, said: JsonObject | None) -> None:
    """Tell programs on standard output what has happened, or people on standard error."""
    if said is None:
        await stderr().write(f"{safe_line(text)}\n")
    else:
        await stdout().write(json_line(said))
