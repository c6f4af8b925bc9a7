"""Opening plain files only: a named pipe in the place of a file is refused and not waited for."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


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
