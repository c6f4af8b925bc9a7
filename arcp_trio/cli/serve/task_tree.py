"""What every task is at, for an operator who wonders what a process is doing."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Final

import trio

from arcp_trio.cli.logs import visible

_IN_BETWEEN: Final = sys.stdlib_module_names | {"trio", "trio_websocket", "outcome"}
"""Where tasks wait on behalf of others: it is their callers that are of interest."""


def show_at(number: signal.Signals) -> None:
    """Write the tree of tasks to standard error whenever this signal comes, and go on.

    In the signal's handler, which needs no turn of its own: so it also shows the agent that keeps
    all others from having theirs.
    """
    root = trio.lowlevel.current_root_task()
    assert root is not None

    def show(_number: int, interrupted: FrameType | None) -> None:
        tree = "".join(f"{line}\n" for line in _lines(root, interrupted))
        # In one piece, and past the buffer of sys.stderr: that may be what was interrupted.
        with suppress(OSError):
            os.write(2, tree.encode(errors="backslashreplace"))

    signal.signal(number, show)


def _lines(root: trio.lowlevel.Task, interrupted: FrameType | None) -> Iterator[str]:
    """How many tasks there are; then each, and further in what it has started."""
    tasks = list(_walk(root))
    running = _running()
    yield f"task tree: {len(tasks)} tasks"
    for depth, task in tasks:
        frames = _behind(interrupted) if task is running else _awaited(task)
        now = " (running)" if task is running else ""
        yield f"{'  ' * depth}- {visible(task.name)}{_place(frames)}{now}"


def _walk(root: trio.lowlevel.Task) -> Iterator[tuple[int, trio.lowlevel.Task]]:
    left = [(0, root)]
    while left:
        depth, task = left.pop()
        yield depth, task
        children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        children.sort(key=lambda child: child.name, reverse=True)
        left += ((depth + 1, child) for child in children)


def _running() -> trio.lowlevel.Task | None:
    try:
        return trio.lowlevel.current_task()
    except RuntimeError:  # none: all of them wait
        return None


def _awaited(task: trio.lowlevel.Task) -> list[FrameType]:
    """Innermost first."""
    return [frame for frame, _ in task.iter_await_frames()][::-1]


def _behind(frame: FrameType | None) -> list[FrameType]:
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _place(frames: Iterable[FrameType]) -> str:
    for frame in frames:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _IN_BETWEEN:
            code = frame.f_code
            return visible(f": {code.co_filename}:{frame.f_lineno} in {code.co_name}")
    return ""
