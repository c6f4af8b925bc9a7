"""Looking for processes that a test has started."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import trio


def alive(pid: int) -> bool:
    """Return whether a process exists; a zombie that this process has not waited for does."""
    try:
        _, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except (FileNotFoundError, ProcessLookupError):  # the latter: it ends between open and read
        return False
    state, parent, *_ = rest.split()
    return state != "Z" or int(parent) == os.getpid()


async def gone(pids: Sequence[int]) -> None:
    """Wait until none of the processes exists."""
    with trio.fail_after(60):
        while any(map(alive, pids)):  # noqa: ASYNC110 - nothing tells of another's child
            await trio.sleep(0.02)


def has_children() -> bool:
    """Return whether this process has children, zombies included; each keeps its exit code."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def children_of(parent: int) -> set[int]:
    """Return the processes that another one has started and that have not been waited for."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return {int(pid) for pid in children.split()}


async def children_are(parent: int, count: int) -> None:
    """Wait until a process has this number of children."""
    with trio.fail_after(20):
        while len(children_of(parent)) != count:  # noqa: ASYNC110 - nothing tells of them
            await trio.sleep(0.02)


async def stopped(pid: int) -> None:
    """Wait until a process that was sent a SIGSTOP stands still."""
    with trio.fail_after(20):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "T":  # noqa: ASYNC110, ASYNC240 - nothing tells of another's child
            await trio.sleep(0.02)
