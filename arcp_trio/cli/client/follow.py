"""Shows a job to its end; `submit` and `watch` are this and what comes before it."""

from __future__ import annotations

from typing import Final

import trio

from arcp_trio.cli.client.display import View
from arcp_trio.cli.errors import CommandError
from arcp_trio.client import BrokenResult, Client, EventsNotKept, JobHandle, ObservedJob
from arcp_trio.wire.errors import ArcpError, ResumeWindowExpired
from arcp_trio.wire.json import Json

EXIT_CODES: Final = {"success": 0, "error": 1, "cancelled": 4, "timed_out": 5}
_FAILED: Final = 1
_CUT_SHORT: Final = ("the runtime restarted", "the runtime was shut down")
"""So begins the end of a job that did nothing wrong."""


async def follow(client: Client, job: JobHandle | ObservedJob, view: View) -> int:
    """Show the job to its end and return the exit code that stands for it.

    Raises:
        CommandError: it ended in something else than success, and that is not told yet.
        ConnectionFailed, ResumeWindowExpired: the session was lost before.
    """
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_mind_connection, client, view, name="connection notices")
            nursery.start_soon(view.keep_up, name="live line")
            await view.begin(job)
            await _show_events(job, view)
            code = await _show_end(job, view)
            nursery.cancel_scope.cancel()
        return code
    finally:
        view.screen.clear()


async def _mind_connection(client: Client, view: View) -> None:
    there_was = True
    async for there_is in client.connection_states():
        if there_is != there_was:
            notice = "connected again" if there_is else "connection lost, trying again"
            await view.screen.add([notice])
        there_was = there_is


async def _show_events(job: JobHandle | ObservedJob, view: View) -> None:
    try:
        async for event in job.events():
            await view.event(event)
    except (EventsNotKept, ResumeWindowExpired) as gap:
        # Its end may be had all the same; if not, there is the better reason.
        await view.screen.add([f"events are missing: {gap}"])


async def _show_end(job: JobHandle | ObservedJob, view: View) -> int:
    value: Json = None
    failure: Exception | None = None
    try:
        value = await job.result()
    except (ArcpError, BrokenResult) as error:
        failure = error
    terminal = job.terminal
    if terminal is None:
        # It is not known how it ended.
        assert failure is not None
        raise failure
    code = EXIT_CODES.get(terminal["final_status"], _FAILED)
    if isinstance(failure, BrokenResult):
        raise CommandError(f"{job.id} succeeded, but its result is broken: {failure}", exit_code=1)
    if not await view.end(terminal, value):
        assert isinstance(failure, ArcpError)
        raise CommandError(_told(job.id, terminal["final_status"], failure), exit_code=code)
    return code


def _told(job_id: str, status: str, error: ArcpError) -> str:
    how = {"cancelled": "was cancelled", "timed_out": "timed out"}.get(status, "failed")
    # By its code every failure may be tried again (§12), also that of an input that is no good.
    cut_short = error.retryable and error.message.startswith(_CUT_SHORT)
    again = "; it may be submitted again" if cut_short else ""
    return f"{job_id} {how}: {error.code}: {error.message}{again}"
