"""What has become of processes that a test has started."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import trio


def alive(pid: int) -> bool:
    """Whether there is such a process; a zombie is one if it is ours to reap."""
    try:
        _, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except FileNotFoundError:
        return False
    state, parent, *_ = rest.split()
    return state != "Z" or int(parent) == os.getpid()


async def gone(pids: Sequence[int]) -> None:
    """Wait until none of the processes is there."""
    with trio.fail_after(10):
        while any(map(alive, pids)):  # noqa: ASYNC110 - nothing tells of another's child
            await trio.sleep(0.02)


def has_children() -> bool:
    """Whether this process has any, be it zombies."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True
