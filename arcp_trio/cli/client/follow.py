"""Shows a job until it ends, for `submit` and `watch`."""

from __future__ import annotations

import signal
from typing import Final

import trio

from arcp_trio import BrokenResult, Client, EventsNotKept, JobHandle, ObservedJob
from arcp_trio.cli.client.asking import Asking
from arcp_trio.cli.client.display import CONNECTION_LOST, NOTHING_MISSED, Display
from arcp_trio.cli.client.screen import Screen
from arcp_trio.cli.errors import CommandError, ExitCode, plainly
from arcp_trio.wire.errors import ArcpError, ResumeWindowExpired
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import JsonObject, JsonValue

EXIT_CODES: Final = {
    "success": ExitCode.SUCCESS,
    "error": ExitCode.FAILED,
    "cancelled": ExitCode.CANCELLED,
    "timed_out": ExitCode.TIMED_OUT,
}
"""The exit code for each status with which a job ends."""
_RESIZE_SECONDS: Final = 0.3
"""How long a terminal may take to get its new size, of which each step is a signal."""
_CUT_SHORT: Final = (
    "the runtime restarted",
    "the runtime was shut down",
    "the job's node was lost",
    "no node could go on with it",
)
"""The beginnings of the message of a job that ended through no fault of its own."""


async def follow(client: Client, job: JobHandle | ObservedJob, display: Display) -> ExitCode:
    """Show the job until it ends, and return the exit code for its status.

    Raises:
        CommandError: the job did not succeed, and the display has not said so.
        ConnectionFailed, ResumeWindowExpired: the session was lost before.
    """
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_show_connection, client, display, name="connection notices")
            nursery.start_soon(display.keep_up, name="live line")
            nursery.start_soon(_mind_size, display.screen, name="size of the terminal")
            await display.begin(client, job)
            if Feature.QUESTIONS in client.features:
                client.on_question(Asking(display.screen).ask)
            await _show_events(job, display)
            code = await _show_end(job, display)
            nursery.cancel_scope.cancel()
        return code
    finally:
        display.screen.clear()


async def _show_connection(client: Client, display: Display) -> None:
    """Show a loss in lines if there is no live line, which would show it, or a question there."""
    screen, was_connected = display.screen, True
    async for is_connected in client.connection_states():
        if is_connected != was_connected:
            if screen.asks or not screen.live:
                notice = "connected again" if is_connected else f"{CONNECTION_LOST}{NOTHING_MISSED}"
                await screen.add([notice])
            if is_connected:
                screen.prompt_again()
        was_connected = is_connected


async def _mind_size(screen: Screen) -> None:
    """Show what is asked again whenever the terminal has another size, which garbles it."""
    with trio.open_signal_receiver(signal.SIGWINCH) as resizes:
        async for _ in resizes:
            await trio.sleep(_RESIZE_SECONDS)
            screen.prompt_again()


async def _show_events(job: JobHandle | ObservedJob, display: Display) -> None:
    try:
        async for event in job.events():
            await display.event(event)
    except (EventsNotKept, ResumeWindowExpired) as gap:
        # The end of the job may still be known; if it is not, its error says why better.
        await display.screen.add([f"events are missing: {gap}"])


async def wait_for_end(job: ObservedJob) -> JsonObject:
    """Wait for the end of a job; return the message that ended it, with its type.

    Raises:
        ArcpError, BrokenResult, ConnectionFailed, ResumeWindowExpired: the end is not known.
    """
    try:
        await job.result()
    except (ArcpError, BrokenResult):
        if job.terminal is None:
            raise
    assert job.terminal is not None
    return job.terminal


async def _show_end(job: JobHandle | ObservedJob, display: Display) -> ExitCode:
    value: JsonValue = None
    failure: Exception | None = None
    try:
        value = await job.result()
    except (ArcpError, BrokenResult) as error:
        failure = error
    terminal = job.terminal
    if terminal is None:
        # The end of the job is not known.
        assert failure is not None
        raise failure
    code = EXIT_CODES.get(terminal["final_status"], ExitCode.FAILED)
    if isinstance(failure, BrokenResult):
        raise CommandError(
            f"{job.id} succeeded, but its result is broken: {failure}", exit_code=ExitCode.FAILED
        )
    if not await display.end(terminal, value):
        assert isinstance(failure, ArcpError)
        raise CommandError(_told(job.id, terminal["final_status"], failure), exit_code=code)
    return code


def _told(job_id: str, status: str, error: ArcpError) -> str:
    if status == "cancelled":
        return f"{job_id} {_cancelled(error)}"
    how = "timed out" if status == "timed_out" else "failed"
    # The code alone says of every failure that it may be tried again (§12), also of a bad input.
    cut_short = error.retryable and error.message.startswith(_CUT_SHORT)
    again = "; it may be submitted again" if cut_short else ""
    return f"{job_id} {how}: {error.code}: {plainly(error.message)}{again}"


def _cancelled(error: ArcpError) -> str:
    """Return who has stopped a job, and why, as far as its end says that."""
    stopped_by, reason = error.details.get("stopped_by"), error.details.get("reason")
    if not isinstance(stopped_by, str):
        return f"was cancelled: {error.message}"
    return f"was stopped by {stopped_by}" + (f": {reason}" if isinstance(reason, str) else "")
