"""The failure that a command reports to the person who typed it."""

from __future__ import annotations

from typing import Final

from arcp_trio.groups import unwrapped

REFUSED: Final = 1
"""The exit code where the runtime says no."""
UNREACHABLE: Final = 3
"""The exit code for those who cannot connect or authenticate."""


class CommandError(Exception):
    """One line that says what is wrong and what to do; the process ends with its exit code."""

    def __init__(self, message: str, *, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def one_line(error: BaseException) -> str:
    """Name an exception, or the one in the groups around it, and the first line of what it says."""
    error = unwrapped(error)
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def reason(error: OSError) -> str:
    """Say why the system refused, without the error number and the path."""
    return (error.strerror or str(error)).lower()
