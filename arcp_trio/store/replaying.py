"""Replay of a session's log piece by piece, for every engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.store.records import Entry, Inline, LogItem, Mark, NumberedTail, Range


class LogReader(Protocol):
    """The reads that a replay needs of an engine."""

    def log_from(self, session_id: str, place: int, last: int) -> Iterator[LogItem]:
        """Yield the log items at or after `place`, for a reader that goes on up to `last`.

        Raises:
            LogTrimmed: the item at `place` was given up.
        """
        ...

    def entries(self, job_id: str, index: int, count: int) -> Iterable[Entry]:
        """Return up to `count` entries of a journal, from `index` on.

        Raises:
            JournalTrimmed: the first of them was given up.
        """
        ...


class ReplayPlace:
    """The next place to read: the log may change from one piece to the next."""

    def __init__(self, session_id: str, after: int, top: int, log_rows: int) -> None:
        self.over = not log_rows
        """Nothing is left to be read, as in the log of a new session."""
        self._session_id = session_id
        self._next = 2 * after + 1
        self._last = 2 * top + 1
        self._log_rows = log_rows

    def read(self, log: LogReader, frames: int, size: int) -> Sequence[NumberedTail]:
        """Return the next frames; see `Replay.next`."""
        found: list[NumberedTail] = []
        trimmed = False
        for item in log.log_from(self._session_id, self._next, self._last):
            full = len(found) >= frames or size <= 0
            # A full piece still takes the marks that stand right after its last number.
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
                trimmed = True
                break  # the frames before the gap are good; the next call meets the gap first
        if found and not found[-1][0]:
            self._next += 1  # the marks of one place go together: the number after them is next
        self.over = not trimmed and len(found) < frames and size > 0
        return found

    def _frames(self, log: LogReader, item: LogItem, most: int) -> Iterator[NumberedTail]:
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
                    return  # the range has grown; what the replay wants of it has been read
                index = item.first_index + first - item.first_seq
                for seq, entry in enumerate(log.entries(item.job_id, index, count), first):
                    yield seq, entry.tail
