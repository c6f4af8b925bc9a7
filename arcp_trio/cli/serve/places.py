"""Where an exception was raised: the file and the line that a person can mend."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import Final

import arcp_trio
from arcp_trio.groups import unwrapped

_PACKAGE: Final = Path(arcp_trio.__file__).parent
_INSTALLED: Final = (Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("platlib")))
_STANDARD: Final = Path(sysconfig.get_path("stdlib"))


def place_in_own_code(error: BaseException) -> str | None:
    """Return the last file and line of an exception that are the code of the person who runs this.

    If no such code is in its traceback, they are those of an installed library, if there is one.
    """
    error = unwrapped(error)
    if isinstance(error, SyntaxError) and error.filename is not None:
        return _place(error.filename, error.lineno)
    own: list[str] = []
    installed: list[str] = []
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if frame.filename.startswith("<") or path.is_relative_to(_PACKAGE):
            continue
        if any(path.is_relative_to(folder) for folder in _INSTALLED):
            installed.append(_place(frame.filename, frame.lineno))
        elif not path.is_relative_to(_STANDARD):
            own.append(_place(frame.filename, frame.lineno))
    found = own or installed
    return found[-1] if found else None


def _place(file: str, line: int | None) -> str:
    return shown_path(file) if line is None else f"{shown_path(file)} line {line}"


def shown_path(file: str) -> str:
    """Return the path of a file, from the current folder if it is in it."""
    path = Path(file)
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
