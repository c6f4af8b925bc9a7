"""How much memory there is for a store that keeps everything in memory."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_CONTAINER: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where Linux says how much memory a container has."""

SHARE: Final = 4
"""The store gets one part of so many: what it counts takes more room as objects."""


def most_bytes() -> float:
    """Return the most that a store in memory should keep; infinite where that is not known."""
    known: list[float] = []
    with suppress(ValueError, OSError, AttributeError):  # other systems have no such settings
        known.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _CONTAINER:
        with suppress(ValueError, OSError):  # there is no such file, or it says "max"
            known.append(int(path.read_text(encoding="ascii")))
    return min(known, default=math.inf) // SHARE
