"""Reads of journals and logs in the file, within the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter

from arcp_trio.store.first_numbers import Run
from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.store.packing import unpack_runs
from arcp_trio.store.records import Entry, Owed
from arcp_trio.store.snapshot import (
    EVERYTHING,
    JOURNAL_PAGE,
    JournalRow,
    LogRow,
    Numbering,
    Snapshot,
)
from arcp_trio.store.sqlite import _rows


class SqliteSnapshot(Snapshot):
    """Journals and logs as they are in one state of the file."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    # -- journals

    def owed(self, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
        """Read the first entries at or after `cursors`; see `Reads.owed`."""
        journals = [self._by_ordinal(job_id, cursor) for job_id, cursor in cursors.items()]
        found: list[Owed] = []
        for _, job_id, entry in merge(*journals, key=itemgetter(0)):
            if entry is None:
                continue
            size -= len(entry.tail)
            if size < 0 and found:
                break
            found.append((job_id, entry))
            if len(found) == entries:
                break
        return found

    def _by_ordinal(self, job_id: str, index: int) -> Iterator[tuple[int, str, Entry | None]]:
        """Yield a job's entries with their ordinals, after an item without an entry.

        The first item has the ordinal of the first row, whose entries are not read for it: a merge
        of many journals reads only those whose turn comes.
        """
        jid = self.journal(job_id, index)
        row = self._db.execute(
            "SELECT first_ordinal FROM journal WHERE jid = ? AND last_index >= ?"
            " ORDER BY last_index LIMIT 1",
            (jid, index),
        ).fetchone()
        if row is not None:
            yield row[0], job_id, None
            for entry in self.entries_of(jid, index):
                yield entry.ordinal, job_id, entry

    def journal(self, job_id: str, index: int) -> int:
        row = self._db.execute(
            "SELECT jid, base FROM retained WHERE job_id = ?", (job_id,)
        ).fetchone()
        if row is None or index < row[1]:
            raise JournalTrimmed(job_id)
        jid: int = row[0]
        return jid

    def reach_back(self, indexes: Mapping[str, int]) -> bool:
        try:
            for job_id, index in indexes.items():
                self.journal(job_id, index)
        except JournalTrimmed:
            return False
        return True

    def journal_rows(self, jid: int, index: int) -> Sequence[JournalRow]:
        return self._db.execute(
            "SELECT first_index, last_index, entries FROM journal"
            " WHERE jid = ? AND last_index >= ? ORDER BY last_index LIMIT ?",
            (jid, index, JOURNAL_PAGE),
        ).fetchall()

    # -- logs

    def log(self, session_id: str) -> tuple[int, int] | None:
        row: tuple[int, int] | None = self._db.execute(
            "SELECT sid, floor FROM session WHERE session_id = ?", (session_id,)
        ).fetchone()
        return row

    def batches(self, sid: int, after: tuple[int, int], limit: int) -> Sequence[LogRow]:
        return self._db.execute(
            "SELECT last_place, row, items FROM log WHERE sid = ? AND (last_place, row) > (?, ?)"
            " ORDER BY last_place, row LIMIT ?",
            (sid, *after, limit),
        ).fetchall()

    def batches_below(
        self, sid: int | None, below: tuple[int, int], limit: int
    ) -> Sequence[LogRow]:
        return self._db.execute(
            "SELECT last_place, row, items FROM log WHERE sid = ? AND (last_place, row) < (?, ?)"
            " ORDER BY last_place DESC, row DESC LIMIT ?",
            (sid, *below, limit),
        ).fetchall()

    def place_after(self, sid: int | None, seq: int) -> tuple[int, int]:
        row = self._db.execute(
            "SELECT last_place, row + 1 FROM log WHERE sid = ? AND last_place >= ?"
            " ORDER BY last_place, row LIMIT 1",
            (sid, 2 * seq),
        ).fetchone()
        return (EVERYTHING, 0) if row is None else row

    # -- numbers

    def numbering(self, job_id: str) -> Numbering | None:
        row = _rows.job(self._db, job_id)
        if row is None:
            return None
        jid, sid, base = self._db.execute(
            "SELECT jid, sid, base FROM job WHERE job_id = ?", (job_id,)
        ).fetchone()
        return Numbering(jid, sid, base, row.last_seq)

    def moved_numbers(self, jid: int, seq: int) -> Sequence[Run]:
        row = self._db.execute(
            "SELECT runs FROM numbering WHERE jid = ? AND first_seq <= ?"
            " ORDER BY first_seq DESC LIMIT 1",
            (jid, seq),
        ).fetchone()
        return [] if row is None else unpack_runs(row[0])
