"""The numbers that the session which submitted a job first gave to the job's entries.

`from_event_seq` and `last_event_seq` refer to these numbers (§6.6, §7.6). They are kept as long as
the job is, even after the session has acknowledged them or is gone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeAlias

Run: TypeAlias = tuple[int, int, int]
"""First number, first index, and how many numbers and entries follow each other from there."""


def extend(runs: list[Run], run: Run) -> None:
    """Append `run`; join it with the last run if it continues where that one ends.

    A run of entries that have numbers already, such as a terminal that is said again, adds nothing.
    """
    first_seq, first_index, count = run
    if runs:
        last_seq, last_index, last_count = runs[-1]
        if first_index < last_index + last_count:
            return
        if last_seq + last_count == first_seq and last_index + last_count == first_index:
            runs[-1] = last_seq, last_index, last_count + count
            return
    runs.append(run)


def end_index(run: Run) -> int:
    """Return the index after the last entry of a run."""
    return run[1] + run[2]


def index_after(runs: Sequence[Run], seq: int) -> int:
    """Return the index after the last entry with a number up to `seq`; 0 if no entry has one."""
    at = bisect_right(runs, seq, key=_first_seq)
    if not at:
        return 0
    first_seq, first_index, count = runs[at - 1]
    return first_index + min(count, seq - first_seq + 1)


def _first_seq(run: Run) -> int:
    return run[0]
