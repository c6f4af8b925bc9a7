"""Replaying a log piece by piece, whatever the engine keeps it in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.store.records import Entry, Frame, Inline, LogItem, Mark, Range


class LogReader(Protocol):
    """What a replay reads."""

    def log_from(self, session_id: str, place: int, last: int) -> Iterator[LogItem]:
        """The log items at or behind a place, for a reader who goes on to the last.

        Raises:
            LogTrimmed: what stands next was given up.
        """
        ...

    def entries(self, job_id: str, index: int, count: int) -> Iterable[Entry]:
        """Entries of a journal.

        Raises:
            JournalTrimmed: the first is gone.
        """
        ...


class ReplayPlace:
    """Keeps the next place to read, so that the log may change in between."""

    def __init__(self, session_id: str, after: int, top: int, log_rows: int) -> None:
        self._session_id = session_id
        self._next = 2 * after + 1
        self._last = 2 * top + 1
        self._log_rows = log_rows

    def read(self, log: LogReader, frames: int, size: int) -> Sequence[Frame]:
        """The next frames, at most so many and (but for one) so many bytes; empty at the end."""
        found: list[Frame] = []
        for item in log.log_from(self._session_id, self._next, self._last):
            full = len(found) >= frames or size <= 0
            # A full piece takes along only the marks that stand right behind its last number.
            if item.first_place > (self._next if full else self._last):
                break
            try:
                for frame in self._frames(log, item, frames - len(found)):
                    found.append(frame)
                    size -= len(frame[1])
                    self._next = 2 * frame[0] + 1 if frame[0] else item.last_place
                    if size <= 0:
                        break
            except JournalTrimmed:
                if not found:
                    raise
                break  # what stands before the gap is good; the next call meets it first
        if found and not found[-1][0]:
            self._next += 1  # the marks of one place go together, so the number behind them is next
        return found

    def _frames(self, log: LogReader, item: LogItem, most: int) -> Iterator[Frame]:
        match item:
            case Mark():
                if item.row < self._log_rows:
                    yield 0, item.tail
            case Inline():
                yield item.seq, item.tail
            case Range():
                first = max(item.first_seq, (self._next + 1) // 2)
                count = min(most, min(item.last_seq, self._last // 2) - first + 1)
                if count <= 0:
                    return  # it has grown since, and what is wanted of it was read: it may be gone
                index = item.first_index + first - item.first_seq
                for seq, entry in enumerate(log.entries(item.job_id, index, count), first):
                    yield seq, entry.tail
