"""Files of which only the content counts: at a pipe in the place of one nobody waits."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotPlain(OSError):  # noqa: N818 - says what it is
    """There is something else: a pipe, a device, a folder."""


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file, also through a link, for reading.

    Raises:
        OSError: it cannot be read, or is none (NotPlain).
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return os.fdopen(file, "rb")
    os.close(file)
    raise NotPlain(errno.EINVAL, "not a plain file")


def read_plain(path: Path) -> bytes:
    """Return the content of a plain file.

    Raises:
        OSError: as with `open_plain`.
    """
    with open_plain(path) as file:
        return file.read()
