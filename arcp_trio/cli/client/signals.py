"""What Ctrl-C and SIGTERM do to a command that talks to a runtime."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final

import trio

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Ask = Callable[[], Awaitable[bool]]
"""Asks the person at the terminal, and returns whether the command is to end."""


class Interrupted(Exception):  # noqa: N818 - not an error
    """A signal has ended the block of `Interrupts.leaving`."""


class Interrupts:
    """Ends a command in order at a signal; at Ctrl-C it may ask first."""

    def __init__(self, whole: trio.CancelScope) -> None:
        """Cancel `whole` at a signal, except inside of a block of `leaving`."""
        self._scope = whole
        self.number: int | None = None
        """The signal that has ended the command."""
        self.ask: Ask | None = None
        """Ctrl-C asks this. Without a question, or before its answer, Ctrl-C ends the command."""

    @contextmanager
    def leaving(self) -> Generator[None]:
        """Cancel only this block at a signal, so that what is around it ends in order.

        Raises:
            Interrupted: a signal has ended the block.
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
        """React to the signals as they come; a question is asked by a task of `nursery`."""
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
