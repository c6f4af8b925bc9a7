"""How a signal ends `serve`: the first one in order, the second one at once.

On a terminal, Ctrl-C asks before jobs are lost. That question is the first one then.
"""

from __future__ import annotations

import logging
import os
import queue
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

import trio

from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.keyboard import can_ask, is_meant, tell

if TYPE_CHECKING:
    from arcp_trio.runtime.runtime import Runtime

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_STDERR: Final = 2
_HELD_SECONDS: Final = 1.0
"""How long an agent may hold the event loop before a question."""

Leave = Callable[[int], NoReturn]
"""Ends the process at once with an exit code."""


class LastResort:
    """Ends the process if an orderly end takes too long.

    It waits in a thread of its own: an agent that blocks the event loop does not stop it, and an
    agent in a thread, which the interpreter joins before it exits, does not either.
    """

    def __init__(self, leave: Leave = os._exit) -> None:
        self._leave = leave
        self._exit_code = 0
        self.runtime: Runtime | None = None
        """The runtime whose end takes too long, once there is one."""
        self._deadlines: queue.SimpleQueue[float] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="last resort", daemon=True).start()

    def exit_within(self, seconds: float, exit_code: int = 0) -> None:
        """Set a deadline; the earliest one counts. A signal handler or a thread may call this."""
        self._exit_code = exit_code or self._exit_code
        self._deadlines.put(time.monotonic() + seconds)

    def leave_now(self) -> None:
        """End the process: the interpreter's own end fails if a thread reads standard input."""
        logging.shutdown()
        self._leave_it()

    def _watch(self) -> None:
        deadline = self._deadlines.get()
        while (left := deadline - time.monotonic()) > 0:
            try:
                another = self._deadlines.get(timeout=min(left, threading.TIMEOUT_MAX))
            except queue.Empty:
                continue
            deadline = min(deadline, another)
        self._leave_it()

    def _leave_it(self) -> None:
        # Nothing has to be flushed: standard error is written line by line, and the one line of
        # standard output was flushed when it was printed.
        why = "the start" if self.runtime is None else self.runtime.end_waits_for()
        _say(f"this takes too long: {why}; leaving without it\n".encode())
        self._leave(self._exit_code)


def _say(line: bytes) -> None:
    """Write to standard error without sys.stderr, whose lock a blocked thread may hold.

    If a write would block, do nothing: a full pipe may be what the process is blocked by.
    """
    with suppress(OSError):
        if select.select([], [_STDERR], [], 0)[1]:
            os.write(_STDERR, line)


class Stopping:
    """Takes SIGTERM and SIGINT, and finds out whether `serve` is to end.

    At the first signal it ends in order; at the next one at once. On a terminal, the first Ctrl-C
    asks before jobs are lost: the next one means yes.
    """

    def __init__(self, hurry: Callable[[], None], leave: Leave = os._exit) -> None:
        """Take the signals from here on.

        Args:
            hurry: called as soon as `serve` is to end in order, perhaps by a signal's handler.
            leave: ends the process at once.
        """
        self._hurry = hurry
        self._leave = leave
        self._token = trio.lowlevel.current_trio_token()
        self._may_ask = False
        """Whether Ctrl-C is answered by a question: there are jobs, and not one Ctrl-C before."""
        self._to_ask = trio.Event()
        self._to_stop = trio.Event()
        for each in _SIGNALS:
            signal.signal(each, self._first)

    def stop(self) -> None:
        """End `serve` in order. A signal that comes later counts as the first one."""
        self._hurry()
        self._token.run_sync_soon(self._to_stop.set)

    def _first(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._may_ask and can_ask():
            self._may_ask = False
            self._token.run_sync_soon(self._to_ask.set)
            held = threading.Timer(_HELD_SECONDS, _say_if_held, [self._to_ask])
            held.daemon = True
            held.start()
        else:
            self._mean_it()

    def _mean_it(self) -> None:
        for each in _SIGNALS:
            signal.signal(each, self._second)
        self.stop()

    def _second(self, number: int, _frame: FrameType | None) -> None:
        self._leave(128 + number)

    async def wait(self, runtime: Runtime, drain: float) -> None:
        """Return once `serve` is to end in order."""
        self._may_ask = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask, runtime, drain, name="question at Ctrl-C")
            await self._to_stop.wait()
            nursery.cancel_scope.cancel()

    async def may_lose(self, jobs: Mapping[str, int]) -> None:
        """Ask, on a terminal, before a start ends these numbers of durable jobs, by agent.

        Raises:
            CommandError: they are to be kept, so that `serve` does not start.
        """
        if not can_ask():
            return
        agents, count = ", ".join(jobs), sum(jobs.values())
        end = "1 durable job ends" if count == 1 else f"{count} durable jobs end"
        keep = f"add --agent or --agents with {agents} to go on with them"
        meant = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_at_stop, nursery.cancel_scope, name="stop at start")
            meant = await is_meant(
                f"{end} with this start, which has no durable agent {agents}",
                "type yes to end them; anything else keeps them, and does not start",
            )
            nursery.cancel_scope.cancel()
        if not meant:
            raise CommandError(f"not started, so that no job is lost; {keep}")

    async def _cancel_at_stop(self, scope: trio.CancelScope) -> None:
        await self._to_stop.wait()
        scope.cancel()

    async def _ask(self, runtime: Runtime, drain: float) -> None:
        while True:
            await self._to_ask.wait()
            left = runtime.unfinished()
            how = "type yes, or press Ctrl-C again, to end them; anything else goes on"
            if not left["ending"] or await is_meant(f"\n{losses(left, drain)}", how):
                self._mean_it()
                return
            self._to_ask, self._may_ask = trio.Event(), True
            tell("going on; Ctrl-C asks again")


def _say_if_held(asked: trio.Event) -> None:
    if not asked.is_set():
        _say(b"an agent holds the event loop, so nothing can be asked: Ctrl-C again ends it\n")


def losses(left: Mapping[str, int], drain: float = 0) -> str:
    """Say what the end of a runtime ends, and what goes on."""
    ending, waiting, going_on = (left[k] for k in ("ending", "waiting_for_people", "going_on"))
    one = ending == 1
    when = f" after {drain:g} s at the latest" if drain else ""
    said = f"{ending} {'job ends' if one else 'jobs end'} with this runtime{when}"
    if one and waiting:
        said += ", while it waits for people"
    elif waiting:
        waits = "it waits" if waiting == 1 else "they wait"
        said += f", {waiting} of them while {waits} for people"
    if going_on:
        said += f"; {going_on} {'goes' if going_on == 1 else 'go'} on at the next start"
    return said
