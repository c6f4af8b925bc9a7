"""Runs a command that talks to a runtime: its signals, its failures and its exit code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from arcp_trio import ConnectionFailed
from arcp_trio.cli.client.options import ClientOptions
from arcp_trio.cli.client.signals import SIGNALS, Interrupted, Interrupts
from arcp_trio.cli.errors import PROGRAM, CommandError, ExitCode, plainly, reason
from arcp_trio.cli.logs import set_up
from arcp_trio.groups import leaves
from arcp_trio.wire.errors import ArcpError, ResumeWindowExpired

_LIST_AGENTS: Final = f"; {PROGRAM} agents lists the agents there are"
_ADVICE: Final = {
    "DUPLICATE_KEY": "; with another --key it is another job",
    "AGENT_NOT_AVAILABLE": _LIST_AGENTS,
    "AGENT_VERSION_NOT_AVAILABLE": _LIST_AGENTS,
    "JOB_NOT_FOUND": f"; {PROGRAM} jobs --all lists the jobs that may be observed",
}

_O = TypeVar("_O", bound=ClientOptions)
Work = Callable[[_O, Interrupts], Awaitable[int]]
"""What a command does; it returns the exit code."""


def run_client(work: Work[_O], options: _O) -> int:
    """Run the work of a command, and return the exit code.

    Raises:
        CommandError: the work failed in a way that is to be expected.
    """
    set_up(options.log_level, "text")
    try:
        return trio.run(_run, work, options)
    except Exception as error:
        # Tasks that fail together most often fail for one reason. A CommandError says it best.
        first = min(leaves(error), key=lambda each: not isinstance(each, CommandError))
        _raise_as_command_error(first)
        raise


async def _run(work: Work[_O], options: _O) -> int:
    whole = trio.CancelScope()
    interrupts = Interrupts(whole)
    code: int = ExitCode.SUCCESS
    with trio.open_signal_receiver(*SIGNALS) as signals, whole:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(interrupts.watch, signals, nursery, name="signals")
                code = await work(options, interrupts)
                nursery.cancel_scope.cancel()
        except* (BrokenPipeError, Interrupted):
            pass  # the reader of the output, or the person who typed, has had enough: no failure
    return code if interrupts.number is None else 128 + interrupts.number


def _raise_as_command_error(error: Exception) -> None:
    """Raise the failure that people are told for an exception; return if it is unexpected."""
    if isinstance(error, CommandError):
        raise error
    if isinstance(error, ConnectionFailed | ResumeWindowExpired):
        raise CommandError(
            f"the connection is lost for good: {error}; whether its jobs go on is not known,"
            f" {PROGRAM} jobs --all shows it once the runtime is back",
            exit_code=ExitCode.UNREACHABLE,
        ) from error
    if isinstance(error, ArcpError):
        raise _refusal(error) from error
    if isinstance(error, OSError):
        raise CommandError(
            f"cannot write the output: {reason(error)}", exit_code=ExitCode.FAILED
        ) from error


def _refusal(error: ArcpError) -> CommandError:
    advice = _ADVICE.get(error.code, "")
    if error.retryable:
        advice = "; it may be tried again"
    return refused(error, advice)


def refused(error: ArcpError, advice: str) -> CommandError:
    """Return the failure that says what the runtime has refused, with advice after it."""
    return CommandError(
        f"refused: {error.code}: {plainly(error.message)}{advice}", exit_code=ExitCode.FAILED
    )
