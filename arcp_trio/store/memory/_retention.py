"""How long what has ended is kept: finished jobs, and the keys that stand for them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from itertools import takewhile
from operator import itemgetter

from arcp_trio.store.memory._tables import EndingPlace, StoredJournal, Tables
from arcp_trio.store.records import JobRow
from arcp_trio.store.retention import ROW_BYTES, surplus, surplus_bytes
from arcp_trio.store.writes import Expire

_when = itemgetter(0)
"""When a job has ended, by its place."""


class Retention:
    """Drops what is past its retention, which stands first in `finished` and in `keys`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def begin(self, journal: StoredJournal) -> None:
        """Begin the retention of a job that has ended."""
        row = journal.row
        assert row.finished_at is not None
        journal.ended = row.finished_at, journal.entries[-1].ordinal, row.job_id
        # It has ended last, unless its parent has kept it meanwhile.
        insort(self._tables.finished.setdefault(row.principal, []), journal.ended)

    def expire(self, write: Expire) -> None:
        """Drop what an expiry asks for."""
        for job_id in write.forgotten:
            journal = self._tables.journals.get(job_id)
            if journal is not None and journal.ended is not None and not journal.expired:
                self._retire(journal)
        for finished in list(self._tables.finished.values()):
            self._retire_oldest(finished, bisect_right(finished, write.finished_before, key=_when))
        counts = {principal: len(ends) for principal, ends in self._tables.finished.items()}
        for principal, count in surplus(counts, write.finished_jobs).items():
            self._retire_oldest(self._tables.finished[principal], count)
        stored = self._tables.stored
        for principal, size in surplus_bytes(stored, write.bytes_each, write.bytes_total).items():
            self._retire_bytes(principal, size)
        due = list(takewhile(lambda row: row.expires_at <= write.now, self._tables.keys.values()))
        for row in due:
            if row.job_id not in self._tables.journals:
                self.drop_key((row.principal, row.key))

    def _retire_oldest(self, finished: Sequence[EndingPlace], count: int) -> None:
        for _, _, job_id in finished[:count]:
            self._retire(self._tables.journals[job_id])

    def _retire_bytes(self, principal: str, size: int) -> None:
        """Retire a principal's oldest finished jobs, until they have `size` bytes together."""
        count = 0
        finished = self._tables.finished.get(principal, [])
        while size > 0 and count < len(finished):
            size -= self._tables.journals[finished[count][-1]].size
            count += 1
        self._retire_oldest(finished, count)

    def _retire(self, journal: StoredJournal) -> None:
        """End the retention of a job: only sessions that watch it still read it."""
        assert journal.ended is not None
        journal.expired = True
        finished = self._tables.finished[journal.row.principal]
        del finished[bisect_left(finished, journal.ended)]
        if not finished:
            del self._tables.finished[journal.row.principal]
        self._unlist(journal.row)
        if not journal.watchers:
            self.forget(journal)

    def _unlist(self, row: JobRow) -> None:
        for principal in (row.principal, None):
            listed = self._tables.listed[principal]
            del listed[bisect_left(listed, (row.created_at, row.job_id))]
            if not listed:
                del self._tables.listed[principal]

    def forget(self, journal: StoredJournal) -> None:
        """Drop a job that is past its retention and that nobody watches."""
        del self._tables.journals[journal.row.job_id]
        self._tables.book(journal.row.principal, -journal.size)

    def drop_key(self, name: tuple[str, str]) -> None:
        """Drop a key, if it is there."""
        key = self._tables.keys.pop(name, None)
        if key is not None:
            self._tables.book(key.principal, -len(key.accepted) - ROW_BYTES)
