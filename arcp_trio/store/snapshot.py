"""One state of a store: what an engine reads of journals and logs, and what follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from arcp_trio.store.first_numbers import Run
from arcp_trio.store.interface import LogTrimmed
from arcp_trio.store.packing import unpack_entries, unpack_items
from arcp_trio.store.records import Entry, LogItem, Range

LOG_PAGE: Final = 64
"""Rows of a log read at a time. No statement stays open between pages: it would hold up
checkpoints."""
JOURNAL_PAGE: Final = 8
"""Rows of a journal read at a time."""

JOIN_ENTRIES: Final = 256
"""Adjacent ranges are joined up to this many entries, so that they are read together."""

EVERYTHING: Final = 2**62
"""A bound above every index of a journal and every place of a log."""

LogRow: TypeAlias = tuple[int, int, bytes]
"""A row of a log: its last place, its number, and its items, packed."""
JournalRow: TypeAlias = tuple[int, int, bytes]
"""A row of a journal: its first and last index, and its entries, packed."""


class Numbering(NamedTuple):
    """Where the numbers are that a job's first session gave to its entries."""

    jid: int
    sid: int | None
    """The session; None if there was none."""
    base: int
    """Index of the oldest entry that was not given up."""
    last_seq: int


class Snapshot(ABC):
    """Journals and logs as they are in one state of a store."""

    # -- what an engine reads

    @abstractmethod
    def journal(self, job_id: str, index: int) -> int:
        """Return the `jid` of a job whose journal reaches back to `index`.

        Raises:
            JournalTrimmed: the entry at `index` was given up, or the job is gone.
        """

    @abstractmethod
    def reach_back(self, indexes: Mapping[str, int]) -> bool:
        """Return whether each of these journals reaches back to its index."""

    @abstractmethod
    def journal_rows(self, jid: int, index: int) -> Sequence[JournalRow]:
        """Return the first `JOURNAL_PAGE` rows of a journal that end at `index` or after it."""

    @abstractmethod
    def log(self, session_id: str) -> tuple[int, int] | None:
        """Return the `sid` and the floor of a session."""

    @abstractmethod
    def batches(self, sid: int, after: tuple[int, int], limit: int) -> Sequence[LogRow]:
        """Return up to `limit` batches after the one with this last place and number."""

    @abstractmethod
    def batches_below(
        self, sid: int | None, below: tuple[int, int], limit: int
    ) -> Sequence[LogRow]:
        """Return up to `limit` batches before the one at this place, last first."""

    @abstractmethod
    def place_after(self, sid: int | None, seq: int) -> tuple[int, int]:
        """Return a place right after the batch that has the number `seq`."""

    @abstractmethod
    def numbering(self, job_id: str) -> Numbering | None:
        """Return where the numbers of a job are, unless its retention is over."""

    @abstractmethod
    def moved_numbers(self, jid: int, seq: int) -> Sequence[Run]:
        """Return the numbers of a job around `seq` that are no longer in the log."""

    # -- what follows

    def entries(self, job_id: str, index: int, count: int) -> Iterable[Entry]:
        """Yield up to `count` entries of a journal, from `index` on, reading as they are taken."""
        return islice(self.entries_of(self.journal(job_id, index), index), count)

    def entries_of(self, jid: int, index: int) -> Iterator[Entry]:
        """Yield the entries of a journal from `index` on."""
        while rows := self.journal_rows(jid, index):
            for first_index, last_index, packed in rows:
                skipped = max(0, index - first_index)
                yield from islice(unpack_entries(first_index, packed), skipped, None)
                index = last_index + 1

    def log_from(self, session_id: str, place: int, last: int) -> Iterator[LogItem]:
        """Yield the log items at or after `place`, for a reader that goes on up to `last`."""
        row = self.log(session_id)
        if row is None or place <= min(2 * row[1], last):
            raise LogTrimmed
        yield from _joined(self._items(row[0], place))

    def _items(self, sid: int, place: int) -> Iterator[LogItem]:
        after = (place, -1)
        while batches := self.batches(sid, after, LOG_PAGE):
            for _, _, packed in batches:
                for item in unpack_items(packed):
                    if item.last_place >= place:
                        yield item
            after = batches[-1][:2]


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
