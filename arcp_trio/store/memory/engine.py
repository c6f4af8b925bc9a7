"""The store itself: commits of one step each, and reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

import trio
from msgspec.structs import replace

from arcp_trio.store.first_numbers import index_after
from arcp_trio.store.interface import JournalTrimmed, Replay, Said, Store
from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.memory._tables import StoredJournal, Tables, last_place
from arcp_trio.store.memory._writing import TableWriter
from arcp_trio.store.memory.machine import most_bytes
from arcp_trio.store.memos import JournalExtent, Memo, digests
from arcp_trio.store.records import (
    JobRow,
    KeyRow,
    NumberedTail,
    Owed,
    Range,
    Recovered,
    SessionRow,
)
from arcp_trio.store.replaying import ReplayPlace
from arcp_trio.store.writes import Write

LOOK_ITEMS: Final = 4_096
"""Items of a long search that are looked at before other tasks have their turn."""


class MemoryStore(Store):
    """Keeps everything in dictionaries, with the rules of any store; it ends with the process."""

    name = "memory"

    def __init__(self, *, journal_bytes: int = 64 * 1024 * 1024) -> None:
        """Make an empty store that keeps at most `journal_bytes` bytes of events for each job."""
        super().__init__()
        self.journal_bytes = journal_bytes
        self.most_bytes = most_bytes()
        self._tables = Tables()
        self._writer = TableWriter(self._tables)

    async def _commit(self, writes: Sequence[Write]) -> None:
        self._writer.apply(writes)  # the writer has given way before, and nothing is waited for

    # -- reading

    async def recover(self) -> Recovered:
        await trio.lowlevel.checkpoint()
        journals = self._tables.journals.values()
        return Recovered(
            ordinal=max((j.entries[-1].ordinal for j in journals if j.entries), default=0),
            sessions={key: log.row.principal for key, log in self._tables.sessions.items()},
            unfinished=[
                replace(journal.row, length=journal.base + len(journal.entries))
                for journal in journals
                if journal.row.finished_at is None
            ],
            credentials=list(self._tables.credentials.values()),
            durable={
                job_id: (journal.durability, _extent(journal))
                for job_id, journal in self._tables.journals.items()
                if journal.durability is not None
            },
        )

    async def stored_bytes(self) -> Mapping[str, int]:
        await trio.lowlevel.checkpoint()
        return dict(self._tables.stored)

    async def session(self, session_id: str) -> SessionRow | None:
        await trio.lowlevel.checkpoint()
        log = self._tables.sessions.get(session_id)
        return None if log is None else replace(log.row, watches=dict(log.row.watches))

    async def session_of_token(self, digest: bytes) -> str | None:
        await trio.lowlevel.checkpoint()
        return self._tables.tokens.get(digest)

    async def owner(self, job_id: str) -> str | None:
        await trio.lowlevel.checkpoint()
        journal = self._tables.journals.get(job_id)
        return None if journal is None or journal.expired else journal.row.principal

    async def job(self, job_id: str) -> JobRow | None:
        await trio.lowlevel.checkpoint()
        journal = self._tables.journals.get(job_id)
        return None if journal is None or journal.expired else journal.told()

    async def jobs(self, query: JobQuery) -> Sequence[JobRow]:
        found: list[JobRow] = []
        bound, size = query.bound, query.size
        while True:
            await trio.lowlevel.checkpoint()
            listed = self._tables.listed.get(query.principal, [])
            stop = bisect_left(listed, bound)
            piece = listed[max(0, stop - LOOK_ITEMS) : stop]
            for created_at, job_id in reversed(piece):
                full = len(found) == query.limit or size < 0
                if full or created_at <= query.created_after:
                    return found
                row = self._tables.journals[job_id].told()
                if query.wants(row):
                    found.append(row)
                    size -= len(row.accepted)
            if len(piece) < LOOK_ITEMS:
                return found
            bound = piece[0]

    async def index_after(self, job_id: str, seq: int) -> int | None:
        await trio.lowlevel.checkpoint()
        journal = self._tables.journals.get(job_id)
        if journal is None or journal.expired:
            return None
        return max(journal.base, index_after(journal.numbers, seq))

    async def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        await trio.lowlevel.checkpoint()
        row = self._tables.keys.get((principal, key))
        if row is None or (row.expires_at <= now and row.job_id not in self._tables.journals):
            return None
        return row

    async def owed(self, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
        await trio.lowlevel.checkpoint()
        found: list[Owed] = []
        for job_id, cursor in cursors.items():
            journal = self._tables.journals.get(job_id)
            if journal is None or cursor < journal.base:
                raise JournalTrimmed(job_id)
            start = cursor - journal.base
            found += [(job_id, entry) for entry in journal.entries[start : start + entries]]
        if len(cursors) > 1:
            found.sort(key=lambda owed: owed[1].ordinal)
        return found[: _fitting([len(entry.tail) for _, entry in found[:entries]], size)]

    async def memos(self, job_id: str) -> Sequence[Memo]:
        await trio.lowlevel.checkpoint()
        journal = self._tables.journals.get(job_id)
        return [] if journal is None else list(journal.memos.values())

    async def memo(self, job_id: str, key: str) -> Memo | None:
        await trio.lowlevel.checkpoint()
        journal = self._tables.journals.get(job_id)
        return None if journal is None else journal.memos.get(key)

    async def said(self, job_id: str, index: int) -> Said:
        await trio.lowlevel.checkpoint()
        journal = self._tables.journals.get(job_id)
        if journal is None:
            return [], None
        if index < journal.base:
            return [each for each in journal.said if each[0] >= index], journal.base
        start = index - journal.base
        piece = journal.entries[start : start + LOOK_ITEMS]
        return digests(piece), index + len(piece) if len(piece) == LOOK_ITEMS else None

    async def covers(self, session_id: str, after: int) -> bool:
        place = 2 * after + 1
        while True:
            await trio.lowlevel.checkpoint()
            log = self._tables.sessions.get(session_id)
            if log is None or after < log.row.floor:
                return False
            start = bisect_left(log.items, place, key=last_place)
            piece = log.items[start : start + LOOK_ITEMS]
            for item in piece:
                if type(item) is Range:
                    index = item.first_index + max(0, after + 1 - item.first_seq)
                    journal = self._tables.journals.get(item.job_id)
                    if journal is None or index < journal.base:
                        return False
            if len(piece) < LOOK_ITEMS:
                return True
            place = piece[-1].last_place + 1

    def replay(self, session_id: str, after: int, top: int, log_rows: int) -> Replay:
        return _MemoryReplay(self._tables, ReplayPlace(session_id, after, top, log_rows))


class _MemoryReplay:
    def __init__(self, tables: Tables, place: ReplayPlace) -> None:
        self._tables = tables
        self._place = place

    async def next(self, frames: int, size: int) -> Sequence[NumberedTail]:
        if self._place.over:
            return ()
        await trio.lowlevel.checkpoint()
        return self._place.read(self._tables, frames, size)


def _extent(journal: StoredJournal) -> JournalExtent:
    return JournalExtent(journal.base, sum(len(entry.tail) for entry in journal.entries))


def _fitting(sizes: Sequence[int], size: int) -> int:
    """Return how many of the first `sizes`, at least one, add up to at most `size`."""
    total = 0
    for count, each in enumerate(sizes):
        total += each
        if total > size and count:
            return count
    return len(sizes)
