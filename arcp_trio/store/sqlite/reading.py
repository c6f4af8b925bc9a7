"""What can be read, each time from one state of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter

import attrs

from arcp_trio.store.interface import JournalTrimmed, LogTrimmed, Owed
from arcp_trio.store.records import (
    CredentialRow,
    CredentialState,
    Entry,
    JobRow,
    KeyRow,
    LogItem,
    Range,
    Recovered,
    SessionRow,
    Status,
)
from arcp_trio.store.sqlite.packing import unpack_entries, unpack_items

LOG_PAGE, JOURNAL_PAGE = 64, 8
"""Rows read at a time. No statement stays open between them: it would hold up checkpoints."""

COVER_PAGE = 1_024
"""Rows of a log looked at in one go; other readers wait that long."""

JOIN_ENTRIES = 256
"""Adjacent ranges are joined up to this many entries, so that they are read together."""


class Snapshot:
    """Reads on one connection, within the caller's transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    # -- rows

    def recover(self) -> Recovered:
        """What is here already."""
        db = self._db
        (ordinal,) = db.execute("SELECT ordinal FROM state").fetchone()
        sessions = db.execute("SELECT session_id, principal FROM session ORDER BY sid").fetchall()
        unfinished = db.execute(
            "SELECT job_id, jid, base FROM job WHERE finished_at IS NULL ORDER BY jid"
        ).fetchall()
        rows = [(self.job(job_id), jid, base) for job_id, jid, base in unfinished]
        return Recovered(
            ordinal=ordinal,
            sessions=dict(sessions),
            unfinished=[
                attrs.evolve(row, length=self._length(jid, base))
                for row, jid, base in rows
                if row is not None
            ],
            credentials=self._credentials(),
        )

    def _credentials(self) -> list[CredentialRow]:
        rows = self._db.execute(
            "SELECT row_id, order_id, job_id, principal, state, handle, credential_id"
            " FROM credential ORDER BY id"
        ).fetchall()
        return [
            CredentialRow(
                row_id=row[0],
                order_id=row[1],
                job_id=row[2],
                principal=row[3],
                state=CredentialState(row[4]),
                handle=row[5],
                credential_id=row[6],
            )
            for row in rows
        ]

    def _length(self, jid: int, base: int) -> int:
        (last,) = self._db.execute(
            "SELECT max(last_index) FROM journal WHERE jid = ?", (jid,)
        ).fetchone()
        return base if last is None else last + 1

    def session(self, session_id: str) -> SessionRow | None:
        """A session, with its watches."""
        row = self._db.execute(
            "SELECT sid, principal, features, dialect, top, floor, rows, acked"
            " FROM session WHERE session_id = ?",
            (session_id,),
        ).fetchone()
        if row is None:
            return None
        watches = self._db.execute(
            "SELECT job_id, cursor FROM watch WHERE sid = ?", row[:1]
        ).fetchall()
        *spare_tokens, token = self._db.execute(
            "SELECT digest FROM token WHERE sid = ? ORDER BY place", row[:1]
        ).fetchall()
        return SessionRow(
            session_id=session_id,
            principal=row[1],
            features=frozenset(row[2].split()),
            dialect=row[3],
            token=token[0],
            spare_tokens=tuple(digest for (digest,) in spare_tokens),
            top=row[4],
            floor=row[5],
            rows=row[6],
            acked=bool(row[7]),
            watches=dict(watches),
        )

    def session_of_token(self, token: bytes) -> str | None:
        """The session that a resume token's digest belongs to."""
        row = self._db.execute(
            "SELECT session_id FROM token JOIN session USING (sid) WHERE digest = ?", (token,)
        ).fetchone()
        return None if row is None else row[0]

    def job(self, job_id: str) -> JobRow | None:
        """A job, unless its retention is over."""
        row = self._db.execute(
            "SELECT jid, agent, principal, session_id, trace_id, accepted, created_at, status,"
            " finished_at, length, cancelled FROM job WHERE job_id = ? AND expired = 0",
            (job_id,),
        ).fetchone()
        if row is None:
            return None
        submitters = self._db.execute("SELECT session_id FROM submitter WHERE jid = ?", row[:1])
        return JobRow(
            job_id=job_id,
            agent=row[1],
            principal=row[2],
            session_id=row[3],
            trace_id=row[4],
            accepted=row[5],
            created_at=row[6],
            status=Status(row[7]),
            finished_at=row[8],
            length=row[9],
            cancelled=row[10],
            submitters=frozenset(session_id for (session_id,) in submitters.fetchall()),
        )

    def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        """What a key stands for; it lives as long as its job is retained, at least."""
        row = self._db.execute(
            "SELECT fingerprint, job_id, accepted, expires_at FROM key"
            " WHERE principal = ?1 AND key = ?2 AND (expires_at > ?3"
            " OR EXISTS (SELECT 1 FROM retained WHERE retained.job_id = key.job_id))",
            (principal, key, now),
        ).fetchone()
        if row is None:
            return None
        return KeyRow(
            principal=principal,
            key=key,
            fingerprint=row[0],
            job_id=row[1],
            accepted=row[2],
            expires_at=row[3],
        )

    # -- journals

    def owed(self, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
        """The first entries at or after the cursors, in the order they were emitted."""
        journals = [self._numbered(job_id, cursor) for job_id, cursor in cursors.items()]
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

    def _numbered(self, job_id: str, index: int) -> Iterator[tuple[int, str, Entry | None]]:
        """A job's entries with their ordinals; before them its first row's, still unread.

        Of many journals, those whose turn does not come are not read at all.
        """
        jid = self._journal(job_id, index)
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
        """So many entries of a journal, read as they are asked for."""
        return islice(self._entries(self._journal(job_id, index), index), count)

    def _journal(self, job_id: str, index: int) -> int:
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
        """The log items at or behind a place, for a reader who goes on to the last."""
        row = self._log(session_id)
        if row is None or (place + 1) // 2 <= min(row[1], last // 2):
            raise LogTrimmed
        yield from _joined(self._items(row[0], place))

    def _log(self, session_id: str) -> tuple[int, int] | None:
        row: tuple[int, int] | None = self._db.execute(
            "SELECT sid, floor FROM session WHERE session_id = ?", (session_id,)
        ).fetchone()
        return row

    def _items(self, sid: int, place: int) -> Iterator[LogItem]:
        behind = (place, -1)
        while batches := self._batches(sid, behind, LOG_PAGE):
            for _, _, packed in batches:
                for item in unpack_items(packed):
                    if item.last_place >= place:
                        yield item
            behind = batches[-1][:2]

    def _batches(
        self, sid: int, behind: tuple[int, int], most: int
    ) -> list[tuple[int, int, bytes]]:
        """Batches behind the one with this last place and number."""
        return self._db.execute(
            "SELECT last_place, row, items FROM log WHERE sid = ? AND (last_place, row) > (?, ?)"
            " ORDER BY last_place, row LIMIT ?",
            (sid, *behind, most),
        ).fetchall()

    def look(self, cover: Coverage) -> bool:
        """Look at the next piece of a log; False once there is no need to look further."""
        log = self._log(cover.session_id)
        if log is None or cover.after < log[1]:
            cover.complete = False
            return False
        batches = self._batches(log[0], cover.behind, COVER_PAGE)
        for _, _, packed in batches:
            for item in unpack_items(packed):
                if type(item) is Range and item.last_seq > cover.after:
                    self._look_at_range(cover, item)
        if len(batches) < COVER_PAGE:
            return False
        cover.behind = batches[-1][:2]
        return cover.complete

    def _look_at_range(self, cover: Coverage, item: Range) -> None:
        if item.job_id not in cover.jobs:
            cover.jobs.add(item.job_id)
            try:
                self._journal(
                    item.job_id, item.first_index + max(0, cover.after + 1 - item.first_seq)
                )
            except JournalTrimmed:
                cover.complete = False


@attrs.define(eq=False)
class Coverage:
    """Whether a log is complete behind a number. It may be long: it is looked at in pieces."""

    session_id: str
    after: int
    behind: tuple[int, int] = attrs.field(init=False)
    """Last place and number of the last batch that was looked at."""
    jobs: set[str] = attrs.field(factory=set[str])
    """Looked at already: a log has the entries of a journal in their order."""
    complete: bool = True

    def __attrs_post_init__(self) -> None:
        self.behind = (2 * self.after + 1, -1)


def _joined(items: Iterator[LogItem]) -> Iterator[LogItem]:
    """The same items, with ranges that go on from one batch to the next made one."""
    before: LogItem | None = None
    for item in items:
        if (
            type(item) is Range
            and type(before) is Range
            and before.job_id == item.job_id
            and before.first_index + before.count == item.first_index
            and before.last_seq + 1 == item.first_seq
            and before.count < JOIN_ENTRIES
        ):
            before = Range(
                before.first_seq, item.job_id, before.first_index, before.count + item.count
            )
            continue
        if before is not None:
            yield before
        before = item
    if before is not None:
        yield before
