"""How long what has ended is kept: finished jobs, and the keys that stand for them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import islice, takewhile
from operator import itemgetter

from arcp_trio.store.memory._tables import StoredJournal, Tables
from arcp_trio.store.records import JobRow
from arcp_trio.store.retention import ROW_BYTES, surplus, surplus_bytes
from arcp_trio.store.writes import Expire


class Retention:
    """Drops what is past its retention, which stands first in `finished` and in `keys`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def begin(self, journal: StoredJournal) -> None:
        """Begin the retention of a job that has ended."""
        row = journal.row
        assert row.finished_at is not None
        finished = self._tables.finished.setdefault(row.principal, {})
        late = bool(finished) and finished[next(reversed(finished))] > row.finished_at
        finished[row.job_id] = row.finished_at
        if late:  # its parent has kept it meanwhile
            self._tables.finished[row.principal] = dict(sorted(finished.items(), key=itemgetter(1)))

    def expire(self, write: Expire) -> None:
        """Drop what an expiry asks for."""
        for job_id in write.forgotten:
            journal = self._tables.journals.get(job_id)
            if journal is not None and job_id in self._ended(journal.row.principal):
                self._retire(job_id)
        for finished in list(self._tables.finished.values()):
            old = list(takewhile(lambda end: end[1] <= write.finished_before, finished.items()))
            for job_id, _ in old:
                self._retire(job_id)
        counts = {principal: len(ends) for principal, ends in self._tables.finished.items()}
        for principal, count in surplus(counts, write.finished_jobs).items():
            for job_id in list(islice(self._tables.finished[principal], count)):
                self._retire(job_id)
        stored = self._tables.stored
        for principal, size in surplus_bytes(stored, write.bytes_each, write.bytes_total).items():
            self._retire_bytes(principal, size)
        due = list(takewhile(lambda row: row.expires_at <= write.now, self._tables.keys.values()))
        for row in due:
            if row.job_id not in self._tables.journals:
                self.drop_key((row.principal, row.key))

    def _ended(self, principal: str) -> Mapping[str, float]:
        return self._tables.finished.get(principal, {})

    def _retire_bytes(self, principal: str, size: int) -> None:
        """Retire a principal's oldest finished jobs, until they have `size` bytes together."""
        for job_id in list(self._ended(principal)):
            if size <= 0:
                return
            size -= self._tables.journals[job_id].size
            self._retire(job_id)

    def _retire(self, job_id: str) -> None:
        """End the retention of a job: only sessions that watch it still read it."""
        journal = self._tables.journals[job_id]
        journal.expired = True
        finished = self._tables.finished[journal.row.principal]
        del finished[job_id]
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
