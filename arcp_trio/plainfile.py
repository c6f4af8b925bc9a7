"""Opening what a path is meant to be: plain files and no named pipes; paths without any link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

# With O_PATH, passing through a directory does not need the permission to list it.
_O_PATH: Final[int] = getattr(os, "O_PATH", os.O_RDONLY)
_DIRECTORY: Final = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE: Final = _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class NotPlain(OSError):  # noqa: N818 - says what it is
    """The path leads to a pipe, a device or a folder."""


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file for reading; the path may be a link to one.

    Raises:
        NotPlain: the path leads to something else.
        OSError: the file cannot be read.
    """
    # O_NONBLOCK: to open a pipe would wait until another process opens its other end.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return os.fdopen(file, "rb")
    os.close(file)
    raise NotPlain(errno.EINVAL, "not a plain file")


def read_plain(path: Path) -> bytes:
    """Return the content of a plain file.

    Raises:
        NotPlain: the path leads to something else.
        OSError: the file cannot be read.
    """
    with open_plain(path) as file:
        return file.read()


def open_parent(real: str) -> tuple[int, str]:
    """Open the folder of an absolute path without following any link; return the last name, too.

    Raises:
        OSError: there is a link on the path to the folder, or the folder is not there.
    """
    *directories, name = real.split("/")[1:]
    parent = os.open("/", _DIRECTORY)
    for each in directories:
        above = parent
        try:
            parent = os.open(each, _DIRECTORY, dir_fd=above)
        finally:
            os.close(above)
    return parent, name or "."


def open_place(real: str) -> int:
    """Open what is at an absolute path, a last link included, only to keep hold of it.

    Raises:
        OSError: there is a link on the path to its folder, or nothing is there.
    """
    parent, name = open_parent(real)
    try:
        return open_kept(name, parent)
    finally:
        os.close(parent)


def open_kept(name: str, parent: int) -> int:
    """Open what has a name in a folder, a link itself included, only to keep hold of it.

    Raises:
        OSError: nothing is there.
    """
    return os.open(name, _PLACE, dir_fd=parent)
