"""Reads of journals and logs, within the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from arcp_trio.store.first_numbers import Run
from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.store.packing import unpack_runs
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.snapshot import (
    EVERYTHING,
    JOURNAL_PAGE,
    JournalRow,
    LogRow,
    Numbering,
    Snapshot,
)

KEPT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of journals that are kept for the next ranges: to ask the server again takes longer."""


class PostgresSnapshot(Snapshot):
    """Journals and logs as one transaction sees them."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._journals: dict[str, tuple[int, int]] = {}
        """`jid` and base of the journals that were asked for."""
        self._rows: dict[int, Sequence[JournalRow]] = {}
        """The rows of each journal that were read last: the next ranges of a log are in them."""
        self._kept = 0
        """Bytes in these rows."""

    # -- journals

    def journal(self, job_id: str, index: int) -> int:
        found = self._journals.get(job_id)
        if found is None:
            found = self._db.execute(
                "SELECT jid, base FROM retained WHERE job_id = %s", (job_id,)
            ).fetchone()
        if found is None or index < found[1]:
            raise JournalTrimmed(job_id)
        self._journals[job_id] = found
        return found[0]

    def reach_back(self, indexes: Mapping[str, int]) -> bool:
        if not indexes:
            return True
        gone = self._db.execute(
            """SELECT 1 FROM unnest(%s::text[], %s::bigint[]) AS asked (job_id, index)
            LEFT JOIN retained USING (job_id) WHERE base IS NULL OR index < base LIMIT 1""",
            ([*indexes], [*indexes.values()]),
        )
        return gone.fetchone() is None

    def journal_rows(self, jid: int, index: int) -> Sequence[JournalRow]:
        known = self._rows.get(jid)
        if known and known[0][0] <= index <= known[-1][1]:
            return [row for row in known if row[1] >= index]
        rows = self._db.execute(
            """SELECT first_index, last_index, entries FROM journal
            WHERE jid = %s AND last_index >= %s ORDER BY last_index LIMIT %s""",
            (jid, index, JOURNAL_PAGE),
            binary=True,
        ).fetchall()
        self._kept += sum(len(row[2]) for row in rows)
        if self._kept > KEPT_BYTES:
            self._rows.clear()
            self._kept = 0
        self._rows[jid] = rows
        return rows

    # -- logs

    def log(self, session_id: str) -> tuple[int, int] | None:
        return self._db.execute(
            "SELECT sid, floor FROM session WHERE session_id = %s", (session_id,)
        ).fetchone()

    def batches(self, sid: int, after: tuple[int, int], limit: int) -> Sequence[LogRow]:
        return self._db.execute(
            """SELECT last_place, row, items FROM log
            WHERE sid = %s AND (last_place, row) > (%s, %s) ORDER BY last_place, row LIMIT %s""",
            (sid, *after, limit),
            binary=True,
        ).fetchall()

    def batches_below(
        self, sid: int | None, below: tuple[int, int], limit: int
    ) -> Sequence[LogRow]:
        return self._db.execute(
            """SELECT last_place, row, items FROM log
            WHERE sid = %s AND (last_place, row) < (%s, %s)
            ORDER BY last_place DESC, row DESC LIMIT %s""",
            (sid, *below, limit),
            binary=True,
        ).fetchall()

    def place_after(self, sid: int | None, seq: int) -> tuple[int, int]:
        row = self._db.execute(
            """SELECT last_place, row + 1 FROM log WHERE sid = %s AND last_place >= %s
            ORDER BY last_place, row LIMIT 1""",
            (sid, 2 * seq),
        ).fetchone()
        return (EVERYTHING, 0) if row is None else row

    # -- numbers

    def numbering(self, job_id: str) -> Numbering | None:
        row = self._db.execute(
            """SELECT jid, sid, base,
                greatest((SELECT seq FROM last_number WHERE last_number.jid = job.jid),
                    (SELECT last_seq FROM watch WHERE watch.sid = job.sid
                     AND watch.jid = job.jid), 0)
            FROM job WHERE job_id = %s AND NOT expired""",
            (job_id,),
        ).fetchone()
        return None if row is None else Numbering(*row)

    def moved_numbers(self, jid: int, seq: int) -> Sequence[Run]:
        row = self._db.execute(
            """SELECT runs FROM numbering WHERE jid = %s AND first_seq <= %s
            ORDER BY first_seq DESC LIMIT 1""",
            (jid, seq),
            binary=True,
        ).fetchone()
        return [] if row is None else unpack_runs(row[0])
