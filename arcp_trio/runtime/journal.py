"""The writing end of a job's journal, and its bound."""

from __future__ import annotations

from collections import deque

import trio

from arcp_trio.store.interface import Store
from arcp_trio.store.records import Entry
from arcp_trio.store.writes import TrimJournal

SEGMENT_ENTRIES = 64
"""Trimming gives up whole segments of so many entries: sizes need not be kept one by one."""


class Journal:
    """Counts a job's entries and bytes, and gives up the oldest past its bound."""

    def __init__(self, store: Store, job_id: str, most_bytes: float) -> None:
        self.length = 0
        self.waiting = False
        self._store = store
        self._job_id = job_id
        self._most_bytes = most_bytes
        self._bytes = 0
        self._segments: deque[tuple[int, int]] = deque([(0, 0)])
        """Where each segment starts, by index and by bytes ever written."""
        self._given_up = 0
        self._moved = trio.Event()

    def count(self, entry: Entry) -> None:
        """An entry was appended."""
        self.length = entry.index + 1
        self._bytes += len(entry.tail)
        if self.length % SEGMENT_ENTRIES == 0:
            self._segments.append((self.length, self._bytes))

    @property
    def first(self) -> int:
        """The oldest entry it still has."""
        return self._segments[0][0]

    @property
    def over(self) -> bool:
        """Whether it holds more than it may."""
        return self._bytes - self._given_up > self._most_bytes

    @property
    def over_by_a_segment(self) -> bool:
        """Whether something whole could be given up to make it fit."""
        return self.over and len(self._segments) > 1

    def trim(self, reader: int | None) -> None:
        """Give up the oldest segments until it fits, but nothing that `reader` has yet to read."""
        base = 0
        while self.over_by_a_segment:
            index, size = self._segments[1]
            if reader is not None and index > reader:
                break
            self._segments.popleft()
            base, self._given_up = index, size
        if base:
            self._store.put(TrimJournal(self._job_id, base))

    def reader_moved(self) -> None:
        """A watch moved on, or its session left: whoever waits for that looks again."""
        if self.waiting:
            self.waiting = False
            self._moved.set()

    async def reader(self) -> None:
        """Wait until a watch has moved."""
        if not self.waiting:
            self.waiting, self._moved = True, trio.Event()
        await self._moved.wait()
