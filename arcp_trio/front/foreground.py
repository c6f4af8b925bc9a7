"""`serve` in a program: who is told the address, and how Ctrl-C ends the runtime in order."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from types import FrameType

import trio

log = logging.getLogger(__name__)


def is_main_task() -> bool:
    """Return whether the current task is the one that `trio.run` has started."""
    nursery = trio.lowlevel.current_task().parent_nursery
    return nursery is not None and nursery.parent_task is trio.lowlevel.current_root_task()


def say(addresses: Iterable[str]) -> None:
    """Write the addresses to standard error, unless the program's log has them already."""
    if log.isEnabledFor(logging.INFO) and log.hasHandlers():
        return
    with suppress(OSError, ValueError):  # standard error is closed, but the program goes on
        for address in addresses:
            print(f"listening on {address}", file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def ctrl_c() -> Generator[trio.Event]:
    """Take Ctrl-C for the block, and yield the event that it sets; a second one ends the process.

    As an event, Ctrl-C interrupts no agent and no other task in the middle of its work, which
    KeyboardInterrupt would. Where Ctrl-C would not raise that, it is left alone.
    """
    pressed = trio.Event()
    if not _raises_keyboard_interrupt():
        yield pressed
        return
    token = trio.lowlevel.current_trio_token()

    def press(_number: int, _frame: FrameType | None) -> None:
        # Also when an agent blocks the event loop, or does not stop.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        token.run_sync_soon(pressed.set)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        if signal.getsignal(signal.SIGINT) is press:
            signal.signal(signal.SIGINT, before)


def _raises_keyboard_interrupt() -> bool:
    """Return whether Trio handles Ctrl-C, and neither the program nor the host of a guest run."""
    if threading.current_thread() is not threading.main_thread():
        return False
    code = getattr(signal.getsignal(signal.SIGINT), "__code__", None)
    # Trio has no function that tells this; its handler is defined beside its other functions for
    # KeyboardInterrupt.
    known = trio.lowlevel.currently_ki_protected.__code__
    return code is not None and code.co_filename == known.co_filename
