"""Where a program is: the places in its code, named for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Final

_SKIPPED: Final = sys.stdlib_module_names | {"trio", "trio_websocket", "outcome"}
"""Packages whose functions wait on behalf of their callers: the caller is named instead."""


def callers(frame: FrameType | None) -> list[FrameType]:
    """Return a frame and those that called it, innermost first."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def code_place(frames: Iterable[FrameType]) -> str | None:
    """Return file, line and function of the first frame that is not in a skipped package."""
    for frame in frames:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _SKIPPED:
            code = frame.f_code
            return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
    return None
