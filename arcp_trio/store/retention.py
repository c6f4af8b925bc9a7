"""The finished jobs that each principal loses when there are too many, for every engine."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter


def surplus(finished: Mapping[str, int], most: int) -> dict[str, int]:
    """Return how many finished jobs principals have to lose, so that `most` are kept in all.

    Those that have more than an equal part lose what is above it, and the others lose nothing.

    Args:
        finished: how many each principal has.
    """
    if sum(finished.values()) <= most:
        return {}
    lost: dict[str, int] = {}
    room, left = most, len(finished)
    for principal, count in sorted(finished.items(), key=itemgetter(1)):
        part = min(count, room // left)  # what others leave of their parts is there for the rest
        room -= part
        left -= 1
        if part < count:
            lost[principal] = count - part
    return lost
