"""Commits of groups of writes: entries are gathered by job, every other write has a function."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from arcp_trio.store.packing import journal_rows, pack_entries
from arcp_trio.store.records import Entry
from arcp_trio.store.sqlite import _durable, _writing_jobs, _writing_sessions
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


class GroupWriter:
    """Applies one group of writes, within the caller's transaction.

    Writes to a job or a session that is gone are dropped: nothing can read them.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._entries: dict[str, list[Entry]] = {}
        """The group's entries by job: consecutive entries of a job share a row."""
        self._starts: dict[str, StartJob] = {}
        """The group's starts by job: a job that ends in the same group is updated once."""

    def apply(self, writes: Sequence[Write]) -> int:
        """Apply `writes` in order; return the highest ordinal of their entries, 0 without any."""
        for write in writes:
            if type(write) is AppendJournal:
                self._entries.setdefault(write.job_id, []).append(write.entry)
            elif type(write) is StartJob:
                self._starts[write.job_id] = write
            elif type(write) is FinishJob:
                self._entries.setdefault(write.job_id, []).append(write.entry)
                start = self._starts.pop(write.job_id, None)
                _writing_jobs.finish_job(write, start, self._db)
            else:
                _FUNCTIONS[type(write)](write, self._db)
        for start in self._starts.values():
            _writing_jobs.start_job(start, self._db)
        if not self._entries:
            return 0
        self._append_journals()
        return max(entries[-1].ordinal for entries in self._entries.values())

    def _append_journals(self) -> None:
        self._db.executemany(
            "INSERT INTO journal (jid, first_index, last_index, first_ordinal, entries)"
            " SELECT jid, ?2, ?3, ?4, ?5 FROM job WHERE job_id = ?1",
            (
                (job_id, row[0].index, row[-1].index, row[0].ordinal, pack_entries(row))
                for job_id, entries in self._entries.items()
                for row in journal_rows(entries)
            ),
        )


_FUNCTIONS: Final[Mapping[type[Write], Callable[[Any, sqlite3.Connection], None]]] = {
    PutSession: _writing_sessions.put_session,
    RotateToken: _writing_sessions.rotate_token,
    AppendLog: _writing_sessions.append_log,
    MoveFloor: _writing_sessions.move_floor,
    DropSession: _writing_sessions.drop_session,
    AcceptJob: _writing_jobs.accept_job,
    AddSubmitter: _writing_jobs.add_submitter,
    CancelJob: _writing_jobs.cancel_job,
    KeepMemo: _durable.keep_memo,
    KeepRun: _durable.keep_run,
    KeepSpent: _durable.keep_spent,
    TrimJournal: _writing_jobs.trim_journal,
    KeepCredentials: _writing_jobs.keep_credentials,
    Expire: _writing_jobs.expire,
}
"""What each write does to the tables, but for those that `GroupWriter` puts together."""
