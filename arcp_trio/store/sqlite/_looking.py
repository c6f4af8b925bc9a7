"""Searches that can take long: they go on in pieces, so that other readers have their turn."""

from __future__ import annotations

import sqlite3
from typing import Final

import attrs

from arcp_trio.store.first_numbers import Run, index_after
from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.store.sqlite import _rows
from arcp_trio.store.sqlite._packing import numbered_in, unpack_runs
from arcp_trio.store.sqlite._schema import EVERYTHING
from arcp_trio.store.sqlite._snapshot import Snapshot

PAGE: Final = 1_024
"""Rows of a log that one piece looks at."""


@attrs.define(eq=False)
class Coverage:
    """Finds out whether a log is complete after a number."""

    session_id: str
    after: int
    complete: bool = True
    """The result, once `look` has returned False."""
    _looked_at: tuple[int, int] = attrs.field(init=False)
    """Last place and number of the last batch that was looked at."""
    _reached: dict[str, int] = attrs.field(factory=dict[str, int])
    """The least index that was looked for, by job."""

    def __attrs_post_init__(self) -> None:
        self._looked_at = (2 * self.after + 1, -1)

    def look(self, db: sqlite3.Connection) -> bool:
        """Look at the next piece; return False once the result is known."""
        snapshot = Snapshot(db)
        log = snapshot.log(self.session_id)
        if log is None or self.after < log[1]:
            self.complete = False
            return False
        batches = snapshot.batches(log[0], self._looked_at, PAGE)
        for _, _, packed in batches:
            for job_id, (first_seq, first_index, count) in numbered_in(packed):
                if first_seq + count - 1 > self.after:
                    self._reach(snapshot, job_id, first_index + max(0, self.after + 1 - first_seq))
        if len(batches) < PAGE:
            return False
        self._looked_at = batches[-1][:2]
        return self.complete

    def _reach(self, snapshot: Snapshot, job_id: str, index: int) -> None:
        least = self._reached.get(job_id)
        if least is None or index < least:
            self._reached[job_id] = index
            try:
                snapshot.journal(job_id, index)
            except JournalTrimmed:
                self.complete = False


@attrs.define(eq=False)
class NumberSearch:
    """Finds the entry of a job with the last number up to `seq`, of the session that submitted it.

    The log is searched from that number downwards, and after it the numbers that were moved from
    the deleted part of the log into the table `numbering`.
    """

    job_id: str
    seq: int
    found: int | None = 0
    """The index after that entry; None if there is no such job."""
    base: int = 0
    """Index of the oldest entry that was not given up."""
    _below: tuple[int, int] | None = None
    """Last place and number of the batch after the next one to look at."""

    def look(self, db: sqlite3.Connection) -> bool:
        """Look at the next piece; return False once the result is known."""
        row = _rows.job(db, self.job_id)
        if row is None:
            self.found = None
            return False
        jid, sid, self.base = db.execute(
            "SELECT jid, sid, base FROM job WHERE job_id = ?", (self.job_id,)
        ).fetchone()
        if self._below is None:
            # Batches after the job's last number may be many, and are not looked at.
            self.seq = min(self.seq, row.last_seq)
            self._below = _place_after(db, sid, self.seq)
        batches = db.execute(
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
        self.found = index_after(_moved(db, jid, self.seq), self.seq)
        return False


def _place_after(db: sqlite3.Connection, sid: int, seq: int) -> tuple[int, int]:
    """Return a place right after the batch that has the number `seq`."""
    row = db.execute(
        "SELECT last_place, row + 1 FROM log WHERE sid = ? AND last_place >= ?"
        " ORDER BY last_place, row LIMIT 1",
        (sid, 2 * seq),
    ).fetchone()
    return (EVERYTHING, 0) if row is None else row


def _moved(db: sqlite3.Connection, jid: int, seq: int) -> list[Run]:
    """Return the numbers around `seq` that are no longer in the log."""
    row = db.execute(
        "SELECT runs FROM numbering WHERE jid = ? AND first_seq <= ?"
        " ORDER BY first_seq DESC LIMIT 1",
        (jid, seq),
    ).fetchone()
    return [] if row is None else unpack_runs(row[0])
