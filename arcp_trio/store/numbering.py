"""Which numbers the session that submitted a job first gave to its entries, for as long as the job.

They are the numbers that `from_event_seq` and `last_event_seq` speak of (§6.6, §7.6), whatever that
session has acknowledged, and when it is gone, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

Run = tuple[int, int, int]
"""First number, first index, and how many follow each other in both."""


def extend(runs: list[Run], run: Run) -> None:
    """Put a run behind those before it, as one with the last if it goes on where that ends."""
    first_seq, first_index, count = run
    if runs:
        last_seq, last_index, last_count = runs[-1]
        if last_seq + last_count == first_seq and last_index + last_count == first_index:
            runs[-1] = last_seq, last_index, last_count + count
            return
    runs.append(run)


def index_behind(run: Run) -> int:
    """The index of the first entry behind a run."""
    return run[1] + run[2]


def index_after(runs: Sequence[Run], seq: int) -> int:
    """The index behind the last entry that has a number up to `seq`; 0 if there is none."""
    at = bisect_right(runs, seq, key=_first_seq)
    if not at:
        return 0
    first_seq, first_index, count = runs[at - 1]
    return first_index + min(count, seq - first_seq + 1)


def _first_seq(run: Run) -> int:
    return run[0]
