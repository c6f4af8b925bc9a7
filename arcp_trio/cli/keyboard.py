"""The keyboard of a person at a terminal, who answers what is asked there."""

from __future__ import annotations

import os
import sys
import termios
from contextlib import suppress
from typing import Final

import trio

_STDIN: Final = 0
_STDERR: Final = 2
_LINE_BYTES: Final = 1024
_LOOK_SECONDS: Final = 1.0
"""How often to look whether the terminal is still this process's."""


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


def can_ask() -> bool:
    """Return whether somebody can read a question and answer it."""
    return keyboard_is_there() and os.isatty(_STDERR) and in_foreground()


def tell(line: str) -> None:
    """Write a line for the person at the terminal."""
    with suppress(OSError):  # standard error is closed, but the command goes on
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


async def is_meant(said: str, how: str) -> bool:
    """Say what is about to be lost, and how to answer; return whether the answer is yes."""
    tell(said)
    drop_typed()
    tell(how)
    while in_foreground():  # else the shell has the keyboard, and nobody answers
        with trio.move_on_after(_LOOK_SECONDS), suppress(OSError):
            return (await typed_line()).strip().lower() == "yes"
    return True
