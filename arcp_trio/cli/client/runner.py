"""Runs the client commands: what signals do, and what comes of failures."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final, cast

import trio

from arcp_trio.cli.client.options import ClientOptions
from arcp_trio.cli.commands import PROGRAM
from arcp_trio.cli.errors import REFUSED, UNREACHABLE, CommandError, reason
from arcp_trio.cli.logs import set_up
from arcp_trio.client import ConnectionFailed
from arcp_trio.wire.errors import ArcpError, ResumeWindowExpired

_ADVICE: Final = {
    "AGENT_NOT_AVAILABLE": f"; {PROGRAM} agents lists those there are",
    "AGENT_VERSION_NOT_AVAILABLE": f"; {PROGRAM} agents lists those there are",
    "JOB_NOT_FOUND": f"; {PROGRAM} jobs --all lists those that may be observed",
}
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Ask = Callable[[], Awaitable[bool]]


class Interrupted(Exception):  # noqa: N818 - not an error
    """A signal has ended what the command was about; it has still to take its leave."""


class Interrupts:
    """What Ctrl-C and SIGTERM do to a command: it leaves, in order. Ctrl-C may be asked about."""

    def __init__(self, all_of_it: trio.CancelScope) -> None:
        self._scope = all_of_it
        self.number: int | None = None
        """The signal that made it leave."""
        self.ask: Ask | None = None
        """Asked at the first Ctrl-C whether to leave; at the second nobody is asked."""

    @contextmanager
    def leaving(self) -> Generator[None]:
        """End only this block at the first signal, so that what is around it ends in order.

        Raises:
            Interrupted: behind the block that was ended.
        """
        around = self._scope
        with trio.CancelScope() as within:
            self._scope = within
            try:
                yield
            finally:
                self._scope = around
        if within.cancelled_caught:
            raise Interrupted

    async def watch(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        """Take the signals as they come."""
        async for number in signals:
            ask, self.ask = self.ask, None
            if number == signal.SIGINT and ask is not None:
                nursery.start_soon(self._ask, ask, name="question at Ctrl-C")
            else:
                self._leave(number)

    async def _ask(self, ask: Ask) -> None:
        if await ask():
            self._leave(signal.SIGINT)

    def _leave(self, number: int) -> None:
        self.number = number
        self._scope.cancel()


Work = Callable[[Interrupts], Awaitable[int]]


def run_client(options: ClientOptions, work: Work) -> int:
    """Run the work of a command, and return the exit code.

    Raises:
        CommandError: it failed.
    """
    set_up(options.log_level, "text")
    try:
        return trio.run(_run, work)
    except Exception as error:
        _explain(_first(error))
        raise


async def _run(work: Work) -> int:
    all_of_it = trio.CancelScope()
    interrupts = Interrupts(all_of_it)
    code = 0
    with trio.open_signal_receiver(*_SIGNALS) as signals, all_of_it:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(interrupts.watch, signals, nursery, name="signals")
                code = await work(interrupts)
                nursery.cancel_scope.cancel()
        except* (BrokenPipeError, Interrupted):
            pass  # whoever read, or whoever typed, has had enough: no failure
    return code if interrupts.number is None else 128 + interrupts.number


def _first(error: Exception) -> Exception:
    """One of those in a group: the one that is made for people, if there is one.

    Tasks that fail together most often do so for one reason.
    """
    if not isinstance(error, ExceptionGroup):
        return error
    group = cast("ExceptionGroup[Exception]", error)
    return _first((group.subgroup(CommandError) or group).exceptions[0])


def _explain(error: Exception) -> None:
    """Raise what a person can make something of, if it is one of the failures to be expected."""
    if isinstance(error, CommandError):
        raise error
    if isinstance(error, ConnectionFailed | ResumeWindowExpired):
        raise CommandError(
            f"the connection is lost for good: {error}; jobs go on, see {PROGRAM} jobs --all",
            exit_code=UNREACHABLE,
        ) from error
    if isinstance(error, ArcpError):
        raise _refusal(error) from error
    if isinstance(error, OSError):
        raise CommandError(f"cannot write the output: {reason(error)}", exit_code=1) from error


def _refusal(error: ArcpError) -> CommandError:
    advice = _ADVICE.get(error.code, "")
    if error.retryable:
        advice = "; it may be tried again"
    return CommandError(f"refused: {error.code}: {error.message}{advice}", exit_code=REFUSED)
