"""What the store holds, in dictionaries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import attrs
from msgspec.structs import replace

from arcp_trio.store.first_numbers import Run
from arcp_trio.store.interface import JournalTrimmed, LogTrimmed
from arcp_trio.store.memos import Durability, Memo
from arcp_trio.store.records import (
    CredentialRow,
    Entry,
    JobRow,
    KeyRow,
    LogItem,
    SessionRow,
)

EndingPlace: TypeAlias = tuple[float, int, str]
"""`finished_at`, ordinal of the terminal and id of a job: its place among those that have ended."""


@attrs.define(eq=False)
class StoredJournal:
    """One job: its row, its entries, and who watches them."""

    row: JobRow
    base: int = 0
    """Index of the oldest entry that is kept."""
    entries: list[Entry] = attrs.field(factory=list[Entry])
    watchers: set[str] = attrs.field(factory=set[str])
    """Ids of sessions."""
    numbers: list[Run] = attrs.field(factory=list[Run])
    """The numbers that the session which submitted the job first gave to its entries."""
    last_seq: int = 0
    """The last number that this session has given to an entry."""
    size: int = 0
    """Bytes that it takes, as they are booked for its principal."""
    expired: bool = False
    """Its retention is over: only sessions that watch it still read it."""
    durability: Durability | None = None
    """What it takes to call its agent again, if it is durable and has not ended."""
    ended: EndingPlace | None = None
    """Its place among the finished jobs of its principal, once its retention has begun."""
    kept_by: str | None = None
    """Its parent, which may be called again and ask for it: until the parent's end it is kept."""
    keeps: list[str] = attrs.field(factory=list[str])
    """The jobs that are `kept_by` this one."""
    memos: dict[str, Memo] = attrs.field(factory=dict[str, Memo])
    said: list[tuple[int, bytes]] = attrs.field(factory=list[tuple[int, bytes]])
    """Indexes and digests of entries that were given up and are not to be said again."""

    def told(self) -> JobRow:
        """Return the row, with `last_seq` brought up to date."""
        if self.row.last_seq != self.last_seq:
            self.row = replace(self.row, last_seq=self.last_seq)
        return self.row


@attrs.define(eq=False)
class SessionLog:
    """One session: its row, and its log items, oldest first."""

    row: SessionRow
    items: list[LogItem] = attrs.field(factory=list[LogItem])


ListingPlace: TypeAlias = tuple[float, str]
"""`created_at` and id of a job: its place in a listing."""


def last_place(item: LogItem) -> int:
    """Return where an item of a log ends, as the key of a search by place."""
    return item.last_place


@attrs.define(eq=False)
class Tables:
    """All that is stored, with the reads that a replay needs."""

    sessions: dict[str, SessionLog] = attrs.field(factory=dict[str, SessionLog])
    tokens: dict[bytes, str] = attrs.field(factory=dict[bytes, str])
    """Session ids by the digests of their tokens."""
    journals: dict[str, StoredJournal] = attrs.field(factory=dict[str, StoredJournal])
    listed: dict[str | None, list[ListingPlace]] = attrs.field(
        factory=dict["str | None", list[ListingPlace]]
    )
    """The retained jobs, oldest first, by principal; under None, those of all principals."""
    finished: dict[str, list[EndingPlace]] = attrs.field(factory=dict[str, list[EndingPlace]])
    """The retained jobs that have ended, by principal; the first to end stands first."""
    keys: dict[tuple[str, str], KeyRow] = attrs.field(factory=dict[tuple[str, str], KeyRow])
    """By principal and key; the first to expire stands first."""
    credentials: dict[str, CredentialRow] = attrs.field(factory=dict[str, CredentialRow])

    stored: dict[str, int] = attrs.field(factory=dict[str, int])
    """Bytes that each principal's jobs, sessions and keys take."""

    def book(self, principal: str, size: int) -> None:
        """Book bytes that a principal has more, or less."""
        stored = self.stored.get(principal, 0) + size
        if stored:
            self.stored[principal] = stored
        else:
            self.stored.pop(principal, None)

    def grow(self, journal: StoredJournal, size: int) -> None:
        """Book bytes that a job takes more, or less."""
        journal.size += size
        self.book(journal.row.principal, size)

    def log_from(self, session_id: str, place: int, last: int) -> Iterator[LogItem]:
        """Yield the log items at or after `place`, for a reader that goes on up to `last`."""
        log = self.sessions[session_id]
        if place <= min(2 * log.row.floor, last):
            raise LogTrimmed
        items = log.items
        for at in range(bisect_left(items, place, key=last_place), len(items)):
            yield items[at]

    def entries(self, job_id: str, index: int, count: int) -> Sequence[Entry]:
        """Return up to `count` entries of a journal, from `index` on."""
        journal = self.journals.get(job_id)
        if journal is None or index < journal.base:
            raise JournalTrimmed(job_id)
        return journal.entries[index - journal.base : index - journal.base + count]
