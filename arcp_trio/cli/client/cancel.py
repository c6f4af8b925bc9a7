"""`arcp-trio cancel`: stops a job, whichever session has submitted it."""

from __future__ import annotations

from typing import Final

import attrs
import trio

from arcp_trio import Client, ObservedJob
from arcp_trio.cli.client.connecting import PATIENCE_SECONDS, connected
from arcp_trio.cli.client.follow import wait_for_end
from arcp_trio.cli.client.options import CancelOptions
from arcp_trio.cli.client.output import json_line, stderr, stdout
from arcp_trio.cli.client.runner import refused, run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import ExitCode
from arcp_trio.cli.ids import whole_job_id
from arcp_trio.cli.text import safe_line
from arcp_trio.wire.errors import InvalidRequest, JobNotFound, PermissionDenied
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import JsonObject

_AGAIN_SECONDS: Final = 0.5
"""How often the end of a job that cannot be observed is asked for."""

_CANCELLED: Final[JsonObject] = {"type": "job.error", "final_status": "cancelled"}
"""What is known of the end of a job that was cancelled, if its terminal is not."""


def run(options: CancelOptions) -> int:
    """Cancel the job, and return the exit code."""
    return run_client(_cancel, options)


async def _cancel(options: CancelOptions, interrupts: Interrupts) -> int:
    patience = None if options.wait else PATIENCE_SECONDS
    async with connected(options, interrupts, patience=patience) as client:
        job_id, reason = await whole_job_id(client, options.job_id), options.reason
        options = attrs.evolve(options, job_id=job_id)
        # Observed from before the cancel, so that the end cannot be missed.
        job = await _observed(client, job_id) if options.wait else None
        ended = await _ask(client, options)
        if ended is not None:
            if job is None or not await _was_cancelled(job):
                raise ended
            return await _tell_end(_CANCELLED, options)
        said: JsonObject = {"type": "job.cancelled", "job_id": job_id}
        said |= {} if reason is None else {"reason": reason}
        await _tell(f"{job_id} is being cancelled", said if options.json else None)
        if options.wait:
            terminal = await (_wait_unseen(client, options) if job is None else wait_for_end(job))
            return await _tell_end(terminal, options)
    return ExitCode.SUCCESS


async def _observed(client: Client, job_id: str) -> ObservedJob | None:
    """Observe the job; return None if the principal may not, as an operator may not."""
    try:
        return await client.subscribe(job_id)
    except JobNotFound:
        return None


async def _ask(client: Client, options: CancelOptions) -> InvalidRequest | None:
    """Ask for the end of the job; return the refusal if it has ended."""
    try:
        await client.stop(options.job_id, options.reason)
    except PermissionDenied as error:
        if Feature.STOP in client.features:
            raise
        # Only the session that submitted the job may cancel it, while that session exists.
        raise refused(
            error,
            "; press Ctrl-C where it was submitted, or wait until that session is over",
        ) from error
    except InvalidRequest as refusal:
        return refusal
    return None


async def _was_cancelled(job: ObservedJob) -> bool:
    """Return whether a job that is said to have ended was cancelled."""
    if job.status in ("pending", "running"):  # it has ended since it is observed
        with trio.move_on_after(PATIENCE_SECONDS):
            return (await wait_for_end(job))["final_status"] == "cancelled"
    return job.status == "cancelled"


async def _wait_unseen(client: Client, options: CancelOptions) -> JsonObject:
    """Wait for the end of a job that cannot be observed, and return what is known of it.

    The runtime has agreed to stop the job, so it ends cancelled. From then on it refuses to.
    """
    while True:
        await trio.sleep(_AGAIN_SECONDS)
        try:
            await client.stop(options.job_id, options.reason)
        except (InvalidRequest, JobNotFound):
            return _CANCELLED


async def _tell_end(terminal: JsonObject, options: CancelOptions) -> ExitCode:
    """Tell how the job has ended, and return whether the cancel has brought it about."""
    status = terminal["final_status"]
    said: JsonObject = {"type": terminal["type"], "job_id": options.job_id} | terminal
    await _tell(f"{options.job_id} has ended: {status}", said if options.json else None)
    return ExitCode.SUCCESS if status == "cancelled" else ExitCode.FAILED


async def _tell(text: str, said: JsonObject | None) -> None:
    """Tell programs on standard output what has happened, or people on standard error."""
    if said is None:
        await stderr().write(f"{safe_line(text)}\n")
    else:
        await stdout().write(json_line(said))
