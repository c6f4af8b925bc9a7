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
    JobQuery,
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

JOIN_ENTRIES = 256
"""Adjacent ranges are joined up to this many entries, so that they are read together."""


_JOB_ROWS = """
    SELECT jid, job_id, agent, principal, session_id, trace_id, accepted, created_at, status,
        finished_at, length, cancelled, max(last_seq, coalesce((SELECT last_seq FROM watch
        WHERE watch.sid = job.sid AND watch.job_id = job.job_id), 0)), budget
    FROM job WHERE """


class Snapshot:
    """Reads on one connection, within the caller's transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    # -- rows

    def recover(self) -> Recovered:
        """What is here already."""
        db = self.db
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
        rows = self.db.execute(
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
        (last,) = self.db.execute(
            "SELECT max(last_index) FROM journal WHERE jid = ?", (jid,)
        ).fetchone()
        return base if last is None else last + 1

    def session(self, session_id: str) -> SessionRow | None:
        """A session, with its watches."""
        row = self.db.execute(
            "SELECT sid, principal, features, dialect, top, floor, rows, acked"
            " FROM session WHERE session_id = ?",
            (session_id,),
        ).fetchone()
        if row is None:
            return None
        watches = self.db.execute(
            "SELECT job_id, cursor, observed FROM watch WHERE sid = ?", row[:1]
        ).fetchall()
        *spare_digests, token = self.db.execute(
            "SELECT digest FROM token WHERE sid = ? ORDER BY place", row[:1]
        ).fetchall()
        return SessionRow(
            session_id=session_id,
            principal=row[1],
            features=frozenset(row[2].split()),
            dialect=row[3],
            token_digest=token[0],
            spare_digests=tuple(digest for (digest,) in spare_digests),
            top=row[4],
            floor=row[5],
            log_rows=row[6],
            acked=bool(row[7]),
            watches={job_id: cursor for job_id, cursor, _ in watches},
            observed=frozenset(job_id for job_id, _, observed in watches if observed),
        )

    def session_of_token(self, token: bytes) -> str | None:
        """The session that a resume token's digest belongs to."""
        row = self.db.execute(
            "SELECT session_id FROM token JOIN session USING (sid) WHERE digest = ?", (token,)
        ).fetchone()
        return None if row is None else row[0]

    def job(self, job_id: str) -> JobRow | None:
        """A job, unless its retention is over."""
        rows = self._jobs("job_id = ? AND expired = 0", job_id)
        return rows[0] if rows else None

    def jobs(self, query: JobQuery) -> Sequence[JobRow]:
        """A page of jobs. Status and agent stand in the index, too: what is not wanted is cheap."""
        terms: list[tuple[str, Sequence[object]]] = [
            ("expired = 0 AND (created_at, job_id) < (?, ?)", query.bound),
            ("created_at > ?", [query.created_after]),
        ]
        if query.principal is not None:
            terms.append(("principal = ?", [query.principal]))
        if query.statuses != frozenset(Status):
            marks = ", ".join("?" * len(query.statuses))
            terms.append((f"status IN ({marks})", sorted(query.statuses)))
        if (agent := query.agent) is not None and "@" in agent:
            terms.append(("agent = ?", [agent]))
        elif agent is not None:
            terms.append(("substr(agent, 1, ?) IN (?, ?)", [len(agent) + 1, agent, f"{agent}@"]))
        which = " AND ".join(term for term, _ in terms)
        order = "ORDER BY created_at DESC, job_id DESC"
        # The index finds them; whole rows are read of those only that are on the page.
        heads = self.db.execute(
            "SELECT jid, length(accepted) FROM job"  # noqa: S608 - no words but ours
            f" WHERE jid IN (SELECT jid FROM job WHERE {which} {order} LIMIT ?) {order}",
            (*(value for _, values in terms for value in values), query.limit),
        ).fetchall()
        jids = _up_to(heads, query.size)
        return self._jobs(f"jid IN ({', '.join('?' * len(jids))}) {order}", *jids)

    def _jobs(self, which: str, *values: object) -> list[JobRow]:
        db = self.db
        rows = db.execute(_JOB_ROWS + which, values).fetchall()
        submitters = "SELECT session_id FROM submitter WHERE jid = ?"
        return [
            JobRow(
                job_id=row[1],
                agent=row[2],
                principal=row[3],
                session_id=row[4],
                trace_id=row[5],
                accepted=row[6],
                created_at=row[7],
                status=Status(row[8]),
                finished_at=row[9],
                length=row[10],
                cancelled=row[11],
                submitters=frozenset(name for (name,) in db.execute(submitters, row[:1])),
                last_seq=row[12],
                budget=row[13],
            )
            for row in rows
        ]

    def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        """What a key stands for; it lives as long as its job is retained, at least."""
        row = self.db.execute(
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
        jid = self.journal(job_id, index)
        row = self.db.execute(
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
        return islice(self._entries(self.journal(job_id, index), index), count)

    def journal(self, job_id: str, index: int) -> int:
        """Where a job's journal is, if it reaches back to this index."""
        row = self.db.execute(
            "SELECT jid, base FROM retained WHERE job_id = ?", (job_id,)
        ).fetchone()
        if row is None or index < row[1]:
            raise JournalTrimmed(job_id)
        jid: int = row[0]
        return jid

    def _entries(self, jid: int, index: int) -> Iterator[Entry]:
        while rows := self.db.execute(
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
        row = self.log(session_id)
        if row is None or (place + 1) // 2 <= min(row[1], last // 2):
            raise LogTrimmed
        yield from _joined(self._items(row[0], place))

    def log(self, session_id: str) -> tuple[int, int] | None:
        """Where a session's log is, and its floor."""
        row: tuple[int, int] | None = self.db.execute(
            "SELECT sid, floor FROM session WHERE session_id = ?", (session_id,)
        ).fetchone()
        return row

    def _items(self, sid: int, place: int) -> Iterator[LogItem]:
        behind = (place, -1)
        while batches := self.batches(sid, behind, LOG_PAGE):
            for _, _, packed in batches:
                for item in unpack_items(packed):
                    if item.last_place >= place:
                        yield item
            behind = batches[-1][:2]

    def batches(self, sid: int, behind: tuple[int, int], most: int) -> list[tuple[int, int, bytes]]:
        """Batches behind the one with this last place and number."""
        return self.db.execute(
            "SELECT last_place, row, items FROM log WHERE sid = ? AND (last_place, row) > (?, ?)"
            " ORDER BY last_place, row LIMIT ?",
            (sid, *behind, most),
        ).fetchall()


def _up_to(heads: Sequence[tuple[int, int]], size: float) -> list[int]:
    """The jobs up to the first with which they take more than so many bytes."""
    jids: list[int] = []
    for jid, length in heads:
        if size < 0:
            break
        jids.append(jid)
        size -= length
    return jids


def _joined(items: Iterator[LogItem]) -> Iterator[LogItem]:
    """The same items, with ranges that go on from one batch to the next made one."""
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
