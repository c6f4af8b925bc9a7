"""What the store holds, in dictionaries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import attrs

from arcp_trio.store.interface import JournalTrimmed, LogTrimmed
from arcp_trio.store.numbering import Run
from arcp_trio.store.records import CredentialRow, Entry, JobRow, KeyRow, LogItem, SessionRow


@attrs.define(eq=False)
class Journal:
    """One job: its row, its entries, and who watches them."""

    row: JobRow
    base: int = 0
    entries: list[Entry] = attrs.field(factory=list[Entry])
    watchers: set[str] = attrs.field(factory=set[str])
    numbers: list[Run] = attrs.field(factory=list[Run])
    """What the session that submitted the job first gave to its entries."""
    expired: bool = False

    def told(self) -> JobRow:
        """The row, up to date."""
        if self.numbers:
            first_seq, _, count = self.numbers[-1]
            if self.row.last_seq != first_seq + count - 1:
                self.row = attrs.evolve(self.row, last_seq=first_seq + count - 1)
        return self.row


@attrs.define(eq=False)
class Log:
    """One session: its row, and its log items oldest first."""

    row: SessionRow
    items: list[LogItem] = attrs.field(factory=list[LogItem])


Place = tuple[float, str]
"""Of a job in a listing: `created_at` and id."""


def last_place(item: LogItem) -> int:
    """Where an item of a log ends, for a search by place."""
    return item.last_place


@attrs.define(eq=False)
class Tables:
    """All of it; and what a replay reads of it."""

    sessions: dict[str, Log] = attrs.field(factory=dict[str, Log])
    tokens: dict[bytes, str] = attrs.field(factory=dict[bytes, str])
    journals: dict[str, Journal] = attrs.field(factory=dict[str, Journal])
    listed: dict[str | None, list[Place]] = attrs.field(factory=dict["str | None", list[Place]])
    """What is retained, oldest first, by principal; and for None, all."""
    finished: dict[str, float] = attrs.field(factory=dict[str, float])
    """When each retained job ended, the first to end first."""
    keys: dict[tuple[str, str], KeyRow] = attrs.field(factory=dict[tuple[str, str], KeyRow])
    """By principal and key, the first to expire first."""
    credentials: dict[str, CredentialRow] = attrs.field(factory=dict[str, CredentialRow])

    def log_from(self, session_id: str, place: int, last: int) -> Iterator[LogItem]:
        """The log items at or behind a place, for a reader who goes on to the last."""
        log = self.sessions[session_id]
        if (place + 1) // 2 <= min(log.row.floor, last // 2):
            raise LogTrimmed
        items = log.items
        for at in range(bisect_left(items, place, key=last_place), len(items)):
            yield items[at]

    def entries(self, job_id: str, index: int, count: int) -> Sequence[Entry]:
        """Entries of a journal."""
        journal = self.journals.get(job_id)
        if journal is None or index < journal.base:
            raise JournalTrimmed(job_id)
        return journal.entries[index - journal.base : index - journal.base + count]
