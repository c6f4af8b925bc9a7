"""SIGUSR1: the tree of tasks and where each is, for an operator."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Final

import trio

from arcp_trio.code_places import callers, code_place
from arcp_trio.log_lines import visible

_STDERR: Final = 2


def show_at(number: signal.Signals) -> None:
    """Write the tree of tasks to standard error whenever this signal comes.

    The signal's handler writes it, and not a task, which would have to wait for its turn: so the
    tree also shows an agent that blocks the event loop.
    """
    root = trio.lowlevel.current_root_task()
    assert root is not None

    def show(_number: int, interrupted: FrameType | None) -> None:
        tree = "".join(f"{line}\n" for line in _lines(root, interrupted))
        # In one write, and without sys.stderr, whose buffer may be what the signal interrupted.
        with suppress(OSError):
            os.write(_STDERR, tree.encode(errors="backslashreplace"))

    signal.signal(number, show)


def _lines(root: trio.lowlevel.Task, interrupted: FrameType | None) -> Iterator[str]:
    """Yield the number of tasks, then a line for each task, indented below its parent's line."""
    tasks = list(_walk(root))
    running = _running()
    yield f"task tree: {len(tasks)} tasks"
    for depth, task in tasks:
        frames = callers(interrupted) if task is running else _awaited(task)
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
    except RuntimeError:  # the signal came between two tasks
        return None


def _awaited(task: trio.lowlevel.Task) -> list[FrameType]:
    """Return the frames of a waiting task, innermost first."""
    return [frame for frame, _ in task.iter_await_frames()][::-1]


def _place(frames: Iterable[FrameType]) -> str:
    """Return the innermost place that is not in a skipped package."""
    place = code_place(frames)
    return "" if place is None else visible(f": {place}")
