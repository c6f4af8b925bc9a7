"""What can take long to find out: it is looked for in pieces, so that other readers have a turn."""

from __future__ import annotations

import attrs

from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.store.numbering import Run, index_after
from arcp_trio.store.sqlite.packing import numbered_in, unpack_runs
from arcp_trio.store.sqlite.reading import Snapshot
from arcp_trio.store.sqlite.writing import EVERYTHING

PAGE = 1_024
"""Rows of a log looked at in one go."""


@attrs.define(eq=False)
class Coverage:
    """Whether a log is complete behind a number."""

    session_id: str
    after: int
    behind: tuple[int, int] = attrs.field(init=False)
    """Last place and number of the last batch that was looked at."""
    reached: dict[str, int] = attrs.field(factory=dict[str, int])
    """The least index of each journal that was looked for already."""
    complete: bool = True

    def __attrs_post_init__(self) -> None:
        self.behind = (2 * self.after + 1, -1)

    def look(self, snapshot: Snapshot) -> bool:
        """Look at the next piece; False once there is no need to look further."""
        log = snapshot.log(self.session_id)
        if log is None or self.after < log[1]:
            self.complete = False
            return False
        batches = snapshot.batches(log[0], self.behind, PAGE)
        for _, _, packed in batches:
            for job_id, (first_seq, first_index, count) in numbered_in(packed):
                if first_seq + count - 1 > self.after:
                    self._reach(snapshot, job_id, first_index + max(0, self.after + 1 - first_seq))
        if len(batches) < PAGE:
            return False
        self.behind = batches[-1][:2]
        return self.complete

    def _reach(self, snapshot: Snapshot, job_id: str, index: int) -> None:
        least = self.reached.get(job_id)
        if least is None or index < least:
            self.reached[job_id] = index
            try:
                snapshot.journal(job_id, index)
            except JournalTrimmed:
                self.complete = False


@attrs.define(eq=False)
class NumberSearch:
    """Which entry of a job has the last number up to `seq`, of the session that submitted it first.

    The log is searched from there downwards, and then what was taken over from the part of it that
    is gone.
    """

    job_id: str
    seq: int
    found: int | None = 0
    """The index behind that entry; None if there is no such job."""
    base: int = 0
    """The oldest entry that was not given up."""
    _below: tuple[int, int] | None = None
    """Last place and number of a batch behind the next one to look at."""

    def look(self, snapshot: Snapshot) -> bool:
        """Look at the next piece; False once it is found."""
        row = snapshot.job(self.job_id)
        if row is None:
            self.found = None
            return False
        jid, sid, self.base = snapshot.db.execute(
            "SELECT jid, sid, base FROM job WHERE job_id = ?", (self.job_id,)
        ).fetchone()
        if self._below is None:
            # What was numbered behind the job's last number may be much, and is not looked at.
            self.seq = min(self.seq, row.last_seq)
            self._below = _behind(snapshot, sid, self.seq)
        batches = snapshot.db.execute(
            "SELECT last_place, row, items FROM log WHERE sid = ? AND (last_place, row) < (?, ?)"
            " ORDER BY last_place DESC, row DESC LIMIT ?",
            (sid, *self._below, PAGE),
        ).fetchall()
        for last_place, number, packed in batches:
            self._below = last_place, number
            runs = [run for job_id, run in numbered_in(packed) if job_id == self.job_id]
            self.found = index_after(runs, self.seq)
            if self.found:
                return False
        if len(batches) == PAGE:
            return True
        self.found = index_after(_taken_over(snapshot, jid, self.seq), self.seq)
        return False


def _behind(snapshot: Snapshot, sid: int, seq: int) -> tuple[int, int]:
    """A place right behind the batch that has this number."""
    row = snapshot.db.execute(
        "SELECT last_place, row + 1 FROM log WHERE sid = ? AND last_place >= ?"
        " ORDER BY last_place, row LIMIT 1",
        (sid, 2 * seq),
    ).fetchone()
    return (EVERYTHING, 0) if row is None else row


def _taken_over(snapshot: Snapshot, jid: int, seq: int) -> list[Run]:
    """The numbers around this one that are not in the log any more."""
    row = snapshot.db.execute(
        "SELECT runs FROM numbering WHERE jid = ? AND first_seq <= ?"
        " ORDER BY first_seq DESC LIMIT 1",
        (jid, seq),
    ).fetchone()
    return [] if row is None else unpack_runs(row[0])
