"""What agents of these tests do in their worker process."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def clean(path: str) -> None:
    """Leave a file that says that the agent has cleaned up."""
    Path(path).touch()


def to_the_runtime() -> int:
    """Return the descriptor of the socket to the runtime."""
    return next(each for each in range(3, 64) if stat.S_ISSOCK(os.fstat(each).st_mode))
