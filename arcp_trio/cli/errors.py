"""The failures that a command reports to the person who typed it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum
from typing import Final

from arcp_trio.groups import unwrapped

PROGRAM: Final = "arcp-trio"
"""The name of the program in what it prints."""


class ExitCode(IntEnum):
    """How a command ends, for the program that started it."""

    SUCCESS = 0
    FAILED = 1
    """The job failed, or the runtime refused the request, or the command failed otherwise."""
    USAGE = 2
    UNREACHABLE = 3
    """The command cannot connect to the runtime, or cannot authenticate."""
    CANCELLED = 4
    """The job was cancelled."""
    TIMED_OUT = 5
    """The job timed out."""
    FENCED = 6
    """Other nodes have taken this one for dead, and go on without it."""
    INTERRUPTED = 130
    """Ctrl-C ended the command."""


class CommandError(Exception):
    """One line that says what is wrong and what to do; the command ends with its exit code."""

    def __init__(self, message: str, *, exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def one_line(error: BaseException) -> str:
    """Return the type and the first line of an exception, without the groups around it."""
    error = unwrapped(error)
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def reason(error: OSError) -> str:
    """Return why the system refused, without the error number and the path."""
    return (error.strerror or str(error)).lower()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the known word that is most like a mistyped one, as an aside; "" if none is.

    The dashes of options, which all have, make none of them alike.
    """
    bare = {each.lstrip("-"): each for each in known}
    alike = get_close_matches(word.lstrip("-"), bare, n=1)
    return f" (did you mean {bare[alike[0]]}?)" if alike else ""


def plainly(message: str, within: str = "$.payload") -> str:
    """Return an error's message with its place, the path after `@`, as a word before it.

    Args:
        within: the part of the path that people need not be told.
    """
    fault, at, path = message.rpartition(" @ ")
    if not at or not path.startswith("$") or " " in path:
        return message
    place = path.removeprefix(within).removeprefix("$").removeprefix(".")
    return f"{place}: {fault}" if place else fault
