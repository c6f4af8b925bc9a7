"""The keyboard of a person at a terminal, who answers what is asked there."""

from __future__ import annotations

import os
import termios
from contextlib import suppress
from typing import Final

import trio

_STDIN: Final = 0
_LINE_BYTES: Final = 1024


def keyboard_is_there() -> bool:
    """Return whether standard input is a terminal."""
    return os.isatty(_STDIN)


def in_foreground() -> bool:
    """Return whether what is typed is for this process, and not for the shell that started it."""
    try:
        return os.tcgetpgrp(_STDIN) == os.getpgrp()
    except OSError:  # a terminal without job control
        return True


def drop_typed() -> None:
    """Drop what was typed until now, whole lines and the beginning of one."""
    if in_foreground():  # in the background, this would stop the process
        with suppress(termios.error):
            termios.tcflush(_STDIN, termios.TCIFLUSH)


async def typed_line() -> str:
    """Wait for a line that is typed; it is empty if no more can be typed."""
    # A thread that waits for the keyboard could not be stopped.
    await trio.lowlevel.wait_readable(_STDIN)
    return os.read(_STDIN, _LINE_BYTES).decode(errors="replace")
