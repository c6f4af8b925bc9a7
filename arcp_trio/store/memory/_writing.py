"""What each write does to the tables."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from arcp_trio.store.first_numbers import end_index, extend
from arcp_trio.store.memory._retention import Retention
from arcp_trio.store.memory._tables import SessionLog, StoredJournal, Tables, last_place
from arcp_trio.store.memos import Durability, digests, memo_size
from arcp_trio.store.records import (
    Entry,
    Range,
    SessionRow,
    Status,
)
from arcp_trio.store.retention import ROW_BYTES
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
    KeepMemo,
    KeepRun,
    KeepSpent,
    MoveFloor,
    PutSession,
    RotateToken,
    StartJob,
    TrimJournal,
    Write,
)


class TableWriter:
    """Applies writes, each in one step."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._retention = Retention(tables)
        self._functions: Mapping[type[Write], Callable[[Any], None]] = {
            PutSession: self._put_session,
            RotateToken: self._rotate_token,
            AppendLog: self._append_log,
            MoveFloor: self._move_floor,
            DropSession: self._drop_session,
            AcceptJob: self._accept_job,
            AddSubmitter: self._add_submitter,
            StartJob: self._start_job,
            CancelJob: self._cancel_job,
            FinishJob: self._finish_job,
            KeepMemo: self._keep_memo,
            KeepRun: self._keep_run,
            KeepSpent: self._keep_spent,
            TrimJournal: self._trim_journal,
            KeepCredentials: self._keep_credentials,
            Expire: self._expire,
        }

    def apply(self, writes: Sequence[Write]) -> None:
        """Apply `writes`, in order."""
        journals = self._tables.journals
        for write in writes:
            if type(write) is AppendJournal:
                self._append(journals[write.job_id], write.entry)
            else:
                self._functions[type(write)](write)

    def _append(self, journal: StoredJournal, entry: Entry) -> None:
        journal.entries.append(entry)
        self._tables.grow(journal, len(entry.tail))

    # -- sessions

    def _put_session(self, write: PutSession) -> None:
        self._tables.sessions[write.row.session_id] = SessionLog(write.row)
        self._tables.book(write.row.principal, ROW_BYTES + write.row.log_bytes)
        for digest in (write.row.token_digest, *write.row.spare_digests):
            self._tables.tokens[digest] = write.row.session_id

    def _rotate_token(self, write: RotateToken) -> None:
        log = self._tables.sessions[write.session_id]
        self._forget_tokens(log.row)
        for digest in (write.token_digest, *write.spare_digests):
            self._tables.tokens[digest] = write.session_id
        log.row = replace(
            log.row,
            token_digest=write.token_digest,
            spare_digests=write.spare_digests,
            features=write.features,
            dialect=write.dialect,
            client=write.client,
        )

    def _append_log(self, write: AppendLog) -> None:
        log = self._tables.sessions[write.session_id]
        for item in write.items:
            if type(item) is Range:
                self._number(write.session_id, item)
            last = log.items[-1] if log.items else None
            if type(last) is Range and last.goes_on_in(item):
                log.items[-1] = replace(last, count=last.count + item.count)
            else:
                log.items.append(item)
        watches = log.row.watches
        for job_id in write.watched:
            if job_id in self._tables.journals:
                self._tables.journals[job_id].watchers.add(write.session_id)
        watches.update(write.cursors)
        self._tables.book(log.row.principal, write.log_bytes - log.row.log_bytes)
        observed = log.row.observed.union(write.observed).difference(write.ended)
        for job_id in write.ended:
            watches.pop(job_id, None)
            self._unwatch(job_id, write.session_id)
        log.row = replace(
            log.row,
            top=write.top,
            log_rows=write.row + 1,
            observed=observed,
            log_bytes=write.log_bytes,
        )

    def _number(self, session_id: str, item: Range) -> None:
        journal = self._tables.journals.get(item.job_id)
        if journal is not None and journal.row.session_id == session_id:
            extend(journal.numbers, (item.first_seq, item.first_index, item.count))
            journal.last_seq = item.last_seq

    def _move_floor(self, write: MoveFloor) -> None:
        log = self._tables.sessions[write.session_id]
        self._tables.book(log.row.principal, write.log_bytes - log.row.log_bytes)
        log.row = replace(
            log.row,
            floor=write.floor,
            acked=log.row.acked or write.acked,
            log_bytes=write.log_bytes,
        )
        del log.items[: bisect_left(log.items, 2 * write.floor + 1, key=last_place)]

    def _drop_session(self, write: DropSession) -> None:
        log = self._tables.sessions.pop(write.session_id)
        self._tables.book(log.row.principal, -ROW_BYTES - log.row.log_bytes)
        self._forget_tokens(log.row)
        for job_id in log.row.watches:
            self._unwatch(job_id, write.session_id)

    def _forget_tokens(self, row: SessionRow) -> None:
        for digest in (row.token_digest, *row.spare_digests):
            del self._tables.tokens[digest]

    def _unwatch(self, job_id: str, session_id: str) -> None:
        journal = self._tables.journals.get(job_id)
        if journal is not None:
            journal.watchers.discard(session_id)
            if journal.expired and not journal.watchers:
                self._retention.forget(journal)

    # -- jobs

    def _accept_job(self, write: AcceptJob) -> None:
        row = write.row
        journal = self._tables.journals[row.job_id] = StoredJournal(row)
        self._tables.grow(journal, len(row.accepted) + ROW_BYTES)
        for principal in (row.principal, None):
            insort(self._tables.listed.setdefault(principal, []), (row.created_at, row.job_id))
        if write.key is not None:
            name = write.key.principal, write.key.key
            self._retention.drop_key(name)  # an expired key would keep its old place
            self._tables.keys[name] = write.key
            self._tables.book(write.key.principal, len(write.key.accepted) + ROW_BYTES)
        if write.durability is not None:
            journal.durability = write.durability
            self._tables.grow(journal, len(write.durability.input))
        if write.parent is not None and write.parent in self._tables.journals:
            self._watch_child(write.parent, row.job_id)
        if write.kept and write.parent is not None:
            journal.kept_by = write.parent
            self._tables.journals[write.parent].keeps.append(row.job_id)

    def _watch_child(self, parent: str, job_id: str) -> None:
        """Have each session that watches `parent` without observing it watch the child, too."""
        for session_id in self._tables.journals[parent].watchers:
            row = self._tables.sessions[session_id].row
            if parent not in row.observed:
                row.watches[job_id] = 0
                self._tables.journals[job_id].watchers.add(session_id)

    def _add_submitter(self, write: AddSubmitter) -> None:
        journal = self._tables.journals.get(write.job_id)
        if journal is None:
            return  # the job's retention ended in the meantime
        submitters = journal.row.submitters | {write.session_id}
        journal.row = replace(journal.row, submitters=submitters)

    def _start_job(self, write: StartJob) -> None:
        journal = self._tables.journals[write.job_id]
        journal.row = replace(journal.row, status=Status.RUNNING, started_at=write.started_at)

    def _cancel_job(self, write: CancelJob) -> None:
        journal = self._tables.journals[write.job_id]
        journal.row = replace(journal.row, cancelled=write.reason, stopped_by=write.stopped_by)

    def _finish_job(self, write: FinishJob) -> None:
        journal = self._tables.journals[write.job_id]
        self._append(journal, write.entry)
        journal.row = replace(
            journal.row,
            status=write.status,
            finished_at=write.finished_at,
            length=write.entry.index + 1,
            budget=write.budget,
            error=write.error,
            spent=write.spent,
            last_event=write.last_event,
        )
        if journal.kept_by is None:
            self._retention.begin(journal)
        if journal.durability is not None:
            self._release(journal, journal.durability)

    def _release(self, journal: StoredJournal, durability: Durability) -> None:
        """Give up what it would have taken to call the agent again, and let go of the children."""
        journal.durability = None
        journal.said.clear()
        self._tables.grow(journal, -len(durability.input))
        for child in map(self._tables.journals.__getitem__, journal.keeps):
            child.kept_by = None
            if child.row.finished_at is not None:
                self._retention.begin(child)
        journal.keeps.clear()

    def _keep_memo(self, write: KeepMemo) -> None:
        journal, memo = self._tables.journals[write.job_id], write.memo
        before = journal.memos.get(memo.key)
        if before is not None:
            memo = replace(memo, index=before.index)
            self._tables.grow(journal, -memo_size(before))
        journal.memos[memo.key] = memo
        self._tables.grow(journal, memo_size(memo))

    def _keep_run(self, write: KeepRun) -> None:
        journal = self._tables.journals.get(write.job_id)
        if journal is not None and journal.durability is not None:
            journal.durability = replace(
                journal.durability, run=write.run, fruitless_runs=write.fruitless_runs
            )

    def _keep_spent(self, write: KeepSpent) -> None:
        journal = self._tables.journals.get(write.job_id)
        if journal is not None and journal.durability is not None:
            journal.durability = replace(journal.durability, spent=write.spent)

    def _trim_journal(self, write: TrimJournal) -> None:
        journal = self._tables.journals.get(write.job_id)
        if journal is None:
            return  # an agent that outlived its job emitted after the job's retention
        gone = journal.entries[: write.base - journal.base]
        if journal.durability is not None:
            journal.said += digests(gone)
        self._tables.grow(journal, -sum(len(entry.tail) for entry in gone))
        del journal.entries[: len(gone)]
        journal.base = write.base
        # Of the numbers whose entries are gone, the last run stays: it tells the job's last number.
        below = bisect_left(journal.numbers, write.base, key=end_index)
        del journal.numbers[: min(below, len(journal.numbers) - 1)]

    def _keep_credentials(self, write: KeepCredentials) -> None:
        for row_id in write.gone:
            self._tables.credentials.pop(row_id, None)
        for row in write.rows:
            self._tables.credentials[row.row_id] = row

    def _expire(self, write: Expire) -> None:
        self._retention.expire(write)
