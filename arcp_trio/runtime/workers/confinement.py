"""What a process gives up before it runs agents."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from typing import Final

import attrs

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38


@attrs.frozen
class Confinement:
    """What a worker is held to."""

    user: int | None
    memory_bytes: int | None
    descriptors: int


def confine(held_to: Confinement, parent: int) -> None:
    """Confine this process, which `parent` has forked; exit if the parent has ended since.

    The order matters: changing the user resets what is to happen when the parent ends.
    """
    os.setsid()
    if held_to.user is not None:
        os.setgroups([])
        os.setgid(held_to.user)
        os.setuid(held_to.user)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, held_to.descriptors)
    if held_to.memory_bytes is not None:
        _limit(resource.RLIMIT_AS, held_to.memory_bytes)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    make_undumpable()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def make_undumpable() -> None:
    """Keep other processes of this user from reading this one's memory and environment in /proc.

    It also means that no core is dumped, and that debuggers need root.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))


def _prctl(option: int, value: int) -> None:
    """Call Linux's prctl; other systems have nothing like it."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
