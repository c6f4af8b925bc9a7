"""What principals lose when too much is kept, for every engine."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Final

ROW_BYTES: Final = 512
"""What a job, a session or a key takes in the store besides its texts, about.

Stores in files have it in their triggers: it cannot be changed without a migration."""


def surplus(kept: Mapping[str, int], most: int) -> dict[str, int]:
    """Return how much principals have to lose, so that `most` is kept in all.

    Those that have more than an equal part lose what is above it, and the others lose nothing.

    Args:
        kept: what each principal has.
    """
    if sum(kept.values()) <= most:
        return {}
    lost: dict[str, int] = {}
    room, left = most, len(kept)
    for principal, count in sorted(kept.items(), key=itemgetter(1)):
        part = min(count, room // left)  # what others leave of their parts is there for the rest
        room -= part
        left -= 1
        if part < count:
            lost[principal] = count - part
    return lost


def surplus_bytes(stored: Mapping[str, int], each: float, total: float) -> dict[str, int]:
    """Return how many bytes of finished jobs principals have to lose.

    What is past a bound is brought down to a little less, so that there is room again.

    Args:
        stored: what each principal has.
        each: the bound for one principal.
        total: the bound for all.
    """
    lost: dict[str, int] = {}
    if sum(stored.values()) > total:
        lost = surplus(stored, _little_less(total))
    for principal, size in stored.items():
        if size > each:
            lost[principal] = max(lost.get(principal, 0), size - _little_less(each))
    return lost


def _little_less(bound: float) -> int:
    return int(bound * 15 / 16)
