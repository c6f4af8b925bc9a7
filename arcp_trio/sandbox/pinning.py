"""Making sure that what is mounted is what was authorised, even if paths change meanwhile.

A leased path is opened without following any link, and kept open. Bubblewrap then mounts by names.
Before the program starts, each mount is compared with what is open: if they differ, somebody has
moved the path, or has put a link in its place.

Open folders are not handed to bubblewrap: the program would inherit them, and find all that is
above them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

from attrs import frozen

from arcp_trio.plainfile import open_place
from arcp_trio.sandbox.plan import Mount


@frozen
class Pin:
    """A mount, and its open file or folder."""

    mount: Mount
    descriptor: int


@contextmanager
def pinned(mounts: Sequence[Mount]) -> Generator[Sequence[Pin], None, None]:
    """Open mounts for the length of the block.

    Those that are missing, have links on their paths, or are something else than a folder for a
    tree and a regular file otherwise, are left out.
    """
    pins: list[Pin] = []
    try:
        for mount in mounts:
            with suppress(OSError):
                pins.append(Pin(mount, open_place(mount.path)))
        yield [pin for pin in pins if _is_meant(pin)]
    finally:
        for pin in pins:
            os.close(pin.descriptor)


def moved(pins: Sequence[Pin], root: str) -> str | None:
    """Return the first path that is not what was opened, in another process's root; else None."""
    for pin in pins:
        found = os.stat(root + pin.mount.path)  # noqa: PTH116 - a path of another process
        if not os.path.samestat(found, os.fstat(pin.descriptor)):
            return pin.mount.path
    return None


def _is_meant(pin: Pin) -> bool:
    mode = os.fstat(pin.descriptor).st_mode
    return stat.S_ISDIR(mode) if pin.mount.is_tree else stat.S_ISREG(mode)
