"""Reads of journals and logs, within the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Final

from arcp_trio.store.interface import JournalTrimmed, LogTrimmed, Owed
from arcp_trio.store.records import Entry, LogItem, Range
from arcp_trio.store.sqlite._packing import unpack_entries, unpack_items

LOG_PAGE: Final = 64
"""Rows of a log read at a time. No statement stays open between pages: it would hold up
checkpoints."""
JOURNAL_PAGE: Final = 8
"""Rows of a journal read at a time."""

JOIN_ENTRIES: Final = 256
"""Adjacent ranges are joined up to this many entries, so that they are read together."""


class Snapshot:
    """Journals and logs as they are in one state of the file."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    # -- journals

    def owed(self, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
        """Read the first entries at or after `cursors`; see `Store.owed`."""
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
            for entry in self._entries(jid, index):
                yield entry.ordinal, job_id, entry

    def entries(self, job_id: str, index: int, count: int) -> Iterable[Entry]:
        """Yield up to `count` entries of a journal, from `index` on, reading as they are taken."""
        return islice(self._entries(self.journal(job_id, index), index), count)

    def journal(self, job_id: str, index: int) -> int:
        """Return the `jid` of a job whose journal reaches back to `index`.

        Raises:
            JournalTrimmed: the entry at `index` was given up, or the job is gone.
        """
        row = self._db.execute(
            "SELECT jid, base FROM retained WHERE job_id = ?", (job_id,)
        ).fetchone()
        if row is None or index < row[1]:
            raise JournalTrimmed(job_id)
        jid: int = row[0]
        return jid

    def _entries(self, jid: int, index: int) -> Iterator[Entry]:
        while rows := self._db.execute(
            "SELECT first_index, last_index, entries FROM journal"
            " WHERE jid = ? AND last_index >= ? ORDER BY last_index LIMIT ?",
            (jid, index, JOURNAL_PAGE),
        ).fetchall():
            for first_index, last_index, packed in rows:
                yield from islice(
                    unpack_entries(first_index, packed), max(0, index - first_index), None
                )
                index = last_index + 1

    # -- logs

    def log_from(self, session_id: str, place: int, last: int) -> Iterator[LogItem]:
        """Yield the log items at or after `place`, for a reader that goes on up to `last`."""
        row = self.log(session_id)
        if row is None or place <= min(2 * row[1], last):
            raise LogTrimmed
        yield from _joined(self._items(row[0], place))

    def log(self, session_id: str) -> tuple[int, int] | None:
        """Return the `sid` and the floor of a session."""
        row: tuple[int, int] | None = self._db.execute(
            "SELECT sid, floor FROM session WHERE session_id = ?", (session_id,)
        ).fetchone()
        return row

    def _items(self, sid: int, place: int) -> Iterator[LogItem]:
        after = (place, -1)
        while batches := self.batches(sid, after, LOG_PAGE):
            for _, _, packed in batches:
                for item in unpack_items(packed):
                    if item.last_place >= place:
                        yield item
            after = batches[-1][:2]

    def batches(self, sid: int, after: tuple[int, int], limit: int) -> list[tuple[int, int, bytes]]:
        """Return up to `limit` batches after the one with this last place and number."""
        return self._db.execute(
            "SELECT last_place, row, items FROM log WHERE sid = ? AND (last_place, row) > (?, ?)"
            " ORDER BY last_place, row LIMIT ?",
            (sid, *after, limit),
        ).fetchall()


def _joined(items: Iterator[LogItem]) -> Iterator[LogItem]:
    """Yield the items, with ranges joined that continue from one batch to the next."""
    before: LogItem | None = None
    for item in items:
        if type(before) is Range and before.goes_on_in(item) and before.count < JOIN_ENTRIES:
            before = Range(
                before.first_seq, item.job_id, before.first_index, before.count + item.count
            )
            continue
        if before is not None:
            yield before
        before = item
    if before is not None:
        yield before
