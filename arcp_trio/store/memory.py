"""The store that lives and dies with the process, with the same rules as any other."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatchmethod
from itertools import takewhile

import attrs
import trio

from arcp_trio.store.interface import JournalTrimmed, LogTrimmed, Owed, Replay, Store
from arcp_trio.store.numbering import Run, extend, index_after, index_behind
from arcp_trio.store.records import (
    CredentialRow,
    Entry,
    Frame,
    JobQuery,
    JobRow,
    KeyRow,
    LogItem,
    Range,
    Recovered,
    SessionRow,
    Status,
)
from arcp_trio.store.replaying import ReplayPlace
from arcp_trio.store.writes import (
    AcceptJob,
    AddSubmitter,
    AppendJournal,
    AppendLog,
    CancelJob,
    DropSession,
    Expire,
    FinishJob,
    KeepCredentials,
    MoveFloor,
    PutSession,
    RotateToken,
    StartJob,
    TrimJournal,
    Write,
)


@attrs.define(eq=False)
class _Journal:
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
class _Log:
    """One session: its row, and its log items oldest first."""

    row: SessionRow
    items: list[LogItem] = attrs.field(factory=list[LogItem])


LOOK_ITEMS = 4_096
"""Looked at in one go; then others have their turn."""


def _last_place(item: LogItem) -> int:
    return item.last_place


_Place = tuple[float, str]
"""Of a job in a listing: `created_at` and id."""


class MemoryStore(Store):
    """Everything in dictionaries. Nothing survives the process; everything else holds."""

    def __init__(self, *, journal_bytes: int = 64 * 1024 * 1024) -> None:
        """An empty store, with at most so many bytes of events for each job."""
        super().__init__()
        self.journal_bytes = journal_bytes
        self._apply_write = self._apply  # bound once: every look-up of it builds a function
        self._sessions: dict[str, _Log] = {}
        self._tokens: dict[bytes, str] = {}
        self._journals: dict[str, _Journal] = {}
        self._listed: dict[str | None, list[_Place]] = {}
        """What is retained, oldest first, by principal; and for None, all."""
        self._finished: dict[str, float] = {}
        self._keys: dict[tuple[str, str], KeyRow] = {}
        self._credentials: dict[str, CredentialRow] = {}

    # -- writing

    async def _commit(self, writes: Sequence[Write]) -> None:
        await trio.lowlevel.checkpoint()
        journals = self._journals
        for write in writes:
            if type(write) is AppendJournal:
                journals[write.job_id].entries.append(write.entry)
            else:
                self._apply_write(write)

    @singledispatchmethod
    def _apply(self, write: Write) -> None:
        raise AssertionError(write)

    @_apply.register
    def _(self, write: AcceptJob) -> None:
        row = write.row
        self._journals[row.job_id] = _Journal(row)
        for principal in (row.principal, None):
            insort(self._listed.setdefault(principal, []), (row.created_at, row.job_id))
        if write.key is not None:
            name = write.key.principal, write.key.key
            self._keys.pop(name, None)  # one that has expired would keep its old place
            self._keys[name] = write.key
        if write.parent is not None and write.parent in self._journals:
            self._watch_as(write.parent, row.job_id)

    def _watch_as(self, parent: str, job_id: str) -> None:
        for session_id in self._journals[parent].watchers:
            row = self._sessions[session_id].row
            if parent not in row.observed:
                row.watches[job_id] = 0
                self._journals[job_id].watchers.add(session_id)

    @_apply.register
    def _(self, write: AddSubmitter) -> None:
        journal = self._journals.get(write.job_id)
        if journal is None:
            return  # its retention ended in the meantime
        submitters = journal.row.submitters | {write.session_id}
        journal.row = attrs.evolve(journal.row, submitters=submitters)

    @_apply.register
    def _(self, write: StartJob) -> None:
        journal = self._journals[write.job_id]
        journal.row = attrs.evolve(journal.row, status=Status.RUNNING)

    @_apply.register
    def _(self, write: CancelJob) -> None:
        journal = self._journals[write.job_id]
        journal.row = attrs.evolve(journal.row, cancelled=write.reason)

    @_apply.register
    def _(self, write: TrimJournal) -> None:
        journal = self._journals.get(write.job_id)
        if journal is None:
            return  # an agent that would not go emitted beyond its job's retention
        del journal.entries[: write.base - journal.base]
        journal.base = write.base
        # The last of those that lead to nothing is kept: its number is the job's last, as yet.
        below = bisect_left(journal.numbers, write.base, key=index_behind)
        del journal.numbers[: min(below, len(journal.numbers) - 1)]

    @_apply.register
    def _(self, write: KeepCredentials) -> None:
        for row_id in write.gone:
            self._credentials.pop(row_id, None)
        for row in write.rows:
            self._credentials[row.row_id] = row

    @_apply.register
    def _(self, write: PutSession) -> None:
        self._sessions[write.row.session_id] = _Log(write.row)
        for digest in (write.row.token, *write.row.spare_tokens):
            self._tokens[digest] = write.row.session_id

    @_apply.register
    def _(self, write: AppendLog) -> None:
        log = self._sessions[write.session_id]
        for item in write.items:
            if type(item) is Range:
                self._number(write.session_id, item)
            last = log.items[-1] if log.items else None
            if (
                type(item) is Range
                and type(last) is Range
                and last.job_id == item.job_id
                and last.first_index + last.count == item.first_index
                and last.last_seq + 1 == item.first_seq
            ):
                log.items[-1] = attrs.evolve(last, count=last.count + item.count)
            else:
                log.items.append(item)
        watches = log.row.watches
        for job_id in write.watched:
            if job_id in self._journals:
                self._journals[job_id].watchers.add(write.session_id)
        watches.update(write.cursors)
        observed = log.row.observed.union(write.observed).difference(write.ended)
        for job_id in write.ended:
            watches.pop(job_id, None)
            self._unwatch(job_id, write.session_id)
        log.row = attrs.evolve(log.row, top=write.top, rows=write.row + 1, observed=observed)

    def _number(self, session_id: str, item: Range) -> None:
        journal = self._journals.get(item.job_id)
        if journal is not None and journal.row.session_id == session_id:
            extend(journal.numbers, (item.first_seq, item.first_index, item.count))

    @_apply.register
    def _(self, write: RotateToken) -> None:
        log = self._sessions[write.session_id]
        self._forget_tokens(log.row)
        for digest in (write.token, *write.spare_tokens):
            self._tokens[digest] = write.session_id
        log.row = attrs.evolve(
            log.row,
            token=write.token,
            spare_tokens=write.spare_tokens,
            features=write.features,
            dialect=write.dialect,
        )

    @_apply.register
    def _(self, write: MoveFloor) -> None:
        log = self._sessions[write.session_id]
        log.row = attrs.evolve(log.row, floor=write.floor, acked=log.row.acked or write.acked)
        del log.items[: bisect_left(log.items, 2 * write.floor + 1, key=_last_place)]

    @_apply.register
    def _(self, write: DropSession) -> None:
        log = self._sessions.pop(write.session_id)
        self._forget_tokens(log.row)
        for job_id in log.row.watches:
            self._unwatch(job_id, write.session_id)

    def _forget_tokens(self, row: SessionRow) -> None:
        for digest in (row.token, *row.spare_tokens):
            del self._tokens[digest]

    @_apply.register
    def _(self, write: FinishJob) -> None:
        journal = self._journals[write.job_id]
        journal.entries.append(write.entry)
        journal.row = attrs.evolve(
            journal.row,
            status=write.status,
            finished_at=write.finished_at,
            length=write.entry.index + 1,
            budget=write.budget,
        )
        self._finished[write.job_id] = write.finished_at

    def _unwatch(self, job_id: str, session_id: str) -> None:
        journal = self._journals.get(job_id)
        if journal is not None:
            journal.watchers.discard(session_id)
            if journal.expired and not journal.watchers:
                del self._journals[job_id]

    @_apply.register
    def _(self, write: Expire) -> None:
        """Both maps are in the order in which their entries are due, so what goes stands first."""
        surplus = len(self._finished) - write.finished_jobs
        gone: list[str] = []
        for job_id, finished_at in self._finished.items():
            if finished_at > write.finished_before and len(gone) >= surplus:
                break
            gone.append(job_id)
        for job_id in gone:
            del self._finished[job_id]
            journal = self._journals[job_id]
            journal.expired = True
            self._unlist(journal.row)
            if not journal.watchers:
                del self._journals[job_id]
        due = list(takewhile(lambda row: row.expires_at <= write.now, self._keys.values()))
        for row in due:
            if row.job_id not in self._journals:
                del self._keys[row.principal, row.key]

    def _unlist(self, row: JobRow) -> None:
        for principal in (row.principal, None):
            listed = self._listed[principal]
            del listed[bisect_left(listed, (row.created_at, row.job_id))]
            if not listed:
                del self._listed[principal]

    # -- reading

    async def recover(self) -> Recovered:
        await trio.lowlevel.checkpoint()
        journals = self._journals.values()
        return Recovered(
            ordinal=max((j.entries[-1].ordinal for j in journals if j.entries), default=0),
            sessions={key: log.row.principal for key, log in self._sessions.items()},
            unfinished=[
                attrs.evolve(journal.row, length=journal.base + len(journal.entries))
                for journal in journals
                if journal.row.finished_at is None
            ],
            credentials=list(self._credentials.values()),
        )

    async def session(self, session_id: str) -> SessionRow | None:
        await trio.lowlevel.checkpoint()
        log = self._sessions.get(session_id)
        return None if log is None else attrs.evolve(log.row, watches=dict(log.row.watches))

    async def session_of_token(self, token: bytes) -> str | None:
        await trio.lowlevel.checkpoint()
        return self._tokens.get(token)

    async def job(self, job_id: str) -> JobRow | None:
        await trio.lowlevel.checkpoint()
        journal = self._journals.get(job_id)
        return None if journal is None or journal.expired else journal.told()

    async def jobs(self, query: JobQuery) -> Sequence[JobRow]:
        found: list[JobRow] = []
        bound, size = query.bound, query.size
        while True:
            await trio.lowlevel.checkpoint()
            listed = self._listed.get(query.principal, [])
            stop = bisect_left(listed, bound)
            piece = listed[max(0, stop - LOOK_ITEMS) : stop]
            for created_at, job_id in reversed(piece):
                full = len(found) == query.limit or size < 0
                if full or created_at <= query.created_after:
                    return found
                row = self._journals[job_id].told()
                if query.wants(row):
                    found.append(row)
                    size -= len(row.accepted)
            if len(piece) < LOOK_ITEMS:
                return found
            bound = piece[0]

    async def index_after(self, job_id: str, seq: int) -> int | None:
        await trio.lowlevel.checkpoint()
        journal = self._journals.get(job_id)
        if journal is None or journal.expired:
            return None
        return max(journal.base, index_after(journal.numbers, seq))

    async def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        await trio.lowlevel.checkpoint()
        row = self._keys.get((principal, key))
        if row is None or (row.expires_at <= now and row.job_id not in self._journals):
            return None
        return row

    async def owed(self, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
        await trio.lowlevel.checkpoint()
        found: list[Owed] = []
        for job_id, cursor in cursors.items():
            journal = self._journals.get(job_id)
            if journal is None or cursor < journal.base:
                raise JournalTrimmed(job_id)
            start = cursor - journal.base
            found += [(job_id, entry) for entry in journal.entries[start : start + entries]]
        if len(cursors) > 1:
            found.sort(key=lambda owed: owed[1].ordinal)
        return found[: _fitting([len(entry.tail) for _, entry in found[:entries]], size)]

    async def covers(self, session_id: str, after: int) -> bool:
        place = 2 * after + 1
        while True:
            await trio.lowlevel.checkpoint()
            log = self._sessions.get(session_id)
            if log is None or after < log.row.floor:
                return False
            start = bisect_left(log.items, place, key=_last_place)
            piece = log.items[start : start + LOOK_ITEMS]
            for item in piece:
                if type(item) is Range:
                    index = item.first_index + max(0, after + 1 - item.first_seq)
                    journal = self._journals.get(item.job_id)
                    if journal is None or index < journal.base:
                        return False
            if len(piece) < LOOK_ITEMS:
                return True
            place = piece[-1].last_place + 1

    def replay(self, session_id: str, after: int, top: int, rows: int) -> Replay:
        return _MemoryReplay(self, ReplayPlace(session_id, after, top, rows))

    def log_from(self, session_id: str, place: int, last: int) -> Iterator[LogItem]:
        log = self._sessions[session_id]
        if (place + 1) // 2 <= min(log.row.floor, last // 2):
            raise LogTrimmed
        items = log.items
        for at in range(bisect_left(items, place, key=_last_place), len(items)):
            yield items[at]

    def entries(self, job_id: str, index: int, count: int) -> Sequence[Entry]:
        journal = self._journals.get(job_id)
        if journal is None or index < journal.base:
            raise JournalTrimmed(job_id)
        return journal.entries[index - journal.base : index - journal.base + count]


class _MemoryReplay:
    def __init__(self, store: MemoryStore, place: ReplayPlace) -> None:
        self._store = store
        self._place = place

    async def next(self, frames: int, size: int) -> Sequence[Frame]:
        await trio.lowlevel.checkpoint()
        return self._place.read(self._store, frames, size)


def _fitting(sizes: Sequence[int], size: int) -> int:
    """How many of these, one at least, fit into so many bytes."""
    total = 0
    for count, each in enumerate(sizes):
        total += each
        if total > size and count:
            return count
    return len(sizes)
